import { storm } from "./storms.ts";

storm("corruption");
