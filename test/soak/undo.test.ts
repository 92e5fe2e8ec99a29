import { storm } from "./storms.ts";

storm("undo");
