import { storm } from "./storms.ts";

storm("beside-pi");
