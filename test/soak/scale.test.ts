import { storm } from "./storms.ts";

storm("scale");
