import { storm } from "./storms.ts";

storm("writers");
