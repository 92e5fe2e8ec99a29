import { storm } from "./storms.ts";

storm("recording");
