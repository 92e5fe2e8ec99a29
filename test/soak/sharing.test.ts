import { storm } from "./storms.ts";

storm("sharing");
