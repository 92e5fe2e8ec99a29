import { storm } from "./storms.ts";

storm("view");
