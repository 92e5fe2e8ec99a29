/** Begins the page's script: it runs before there is a body, so that the page is laid out for it at once. */

import { PageApp } from "./app.ts";

declare global {
  interface Window {
    piSession?: {
      /** Reads the added and replaced parts of the document: tree, search and counts follow. */
      refresh(): void;
      /** Returns whether every entry can be searched. */
      isReady(): boolean;
    };
  }
}

document.documentElement.classList.add("js");

document.addEventListener("DOMContentLoaded", () => {
  const app = new PageApp();
  app.start();
  window.piSession = { refresh: () => app.refresh(), isReady: () => app.search.isReady };
});
