import { storm } from "./storms.ts";

storm("model");
