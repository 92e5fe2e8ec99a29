import { storm } from "./storms.ts";

storm("sigkill");
