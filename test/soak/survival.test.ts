import { storm } from "./storms.ts";

storm("survival");
