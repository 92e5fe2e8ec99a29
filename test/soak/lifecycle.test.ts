import { storm } from "./storms.ts";

storm("lifecycle");
