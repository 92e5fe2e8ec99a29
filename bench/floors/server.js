// A server that answers its first request shortly, and each later one after it did the work of one row of the bench, and
// no other: it knows no JSON-RPC, no session, no tree and no lock. It reads no head of a line and checks none, an append has
// no id and no place, a container is one file without index, manifest and checkpoints, and the sum of a frame is CRC-32, as
// Node has no CRC-32C. A reply of a length is bytes that were made beforehand.
//
//   node bench/floors/server.js send <reply> [<file> <bytes>]   reads so many last bytes of a file, and sends the reply
//   node bench/floors/server.js open <file>                     reads a file and finds the ends of its lines
//   node bench/floors/server.js kept <file>                     reads a file into memory of its own, and sums it (CRC-32)
//   node bench/floors/server.js append <file> <reply>           writes the requests that came together, with one fdatasync
//   node bench/floors/server.js migrate <file> <more>           writes each line with so many bytes more, and reads all
//                                                               again, with the hashes of Session Store V2
//
// `reply` is the length of a whole reply, its end of line included.
import { createHash, hash as hashOf } from "node:crypto";
import { closeSync, fdatasyncSync, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { crc32 } from "node:zlib";

const [task, ...given] = process.argv.slice(2);
const PIECE = 1 << 17;
const piece = Buffer.allocUnsafe(PIECE);

/** Reads a file from an offset on, piece by piece, into the same memory. */
function* pieces(fd, from = 0) {
  let at = from;
  for (let count = readSync(fd, piece, 0, PIECE, at); count > 0; count = readSync(fd, piece, 0, PIECE, at)) {
    at += count;
    yield piece.subarray(0, count);
  }
}

/** Returns what makes a short reply of a length to an id. */
function replyOf(length) {
  const before = '{"id":';
  const after = "x".repeat(Math.max(0, length - before.length - 2));
  return ({ id }) => {
    const text = JSON.stringify(id);
    return `${before}${text}${after.slice(text.length - 1)}\n`;
  };
}

const shortly = replyOf(0);

const TASKS = {
  send(length, file, bytes) {
    const isShort = Number(length) <= PIECE;
    const reply = isShort ? replyOf(Number(length)) : undefined;
    const block = Buffer.alloc(PIECE, "x");
    return (requests) => {
      if (file !== undefined) {
        const fd = openSync(file, "r");
        for (const _ of pieces(fd, Math.max(0, fstatSync(fd).size - Number(bytes))));
        closeSync(fd);
      }
      if (isShort) return requests.map(reply).join("");
      for (let left = Number(length) - 1; left > 0; left -= PIECE) process.stdout.write(block.subarray(0, left));
      return "\n";
    };
  },
  open: (file) => (requests) => {
    const fd = openSync(file, "r");
    for (const bytes of pieces(fd)) for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1));
    closeSync(fd);
    return requests.map(shortly).join("");
  },
  kept: (file) => (requests) => {
    const fd = openSync(file, "r");
    const bytes = Buffer.allocUnsafe(fstatSync(fd).size);
    let sum = 0;
    for (let at = 0; at < bytes.length; at += PIECE) {
      const part = bytes.subarray(at, at + PIECE);
      readSync(fd, part);
      sum = crc32(part, sum);
    }
    closeSync(fd);
    return requests.map(shortly).join("");
  },
  append(file, length) {
    const fd = openSync(file, "a");
    const reply = replyOf(Number(length));
    return (requests, lines) => {
      writeSync(fd, lines);
      fdatasyncSync(fd);
      return requests.map(reply).join("");
    };
  },
  migrate: (file, more) => (requests) => {
    const to = openSync(`${file}.floor`, "w+");
    const chain = writeFrames(file, to, Number(more));
    fdatasyncSync(to);
    if (readFrames(to, chain.lengths, Number(more)) !== chain.end) throw new Error("what was written has other hashes");
    return requests.map(shortly).join("");
  },
};

/** The chain of hashes of so many zeros before the first frame. */
const BEGIN = "0".repeat(64);

const chained = (before, payload) => hashOf("sha256", before + hashOf("sha256", payload));

/** Writes the lines of a file as frames; returns their lengths and the end of their chain. */
function writeFrames(file, to, more) {
  const fd = openSync(file, "r");
  const whole = createHash("sha256");
  const lengths = [];
  let end = BEGIN;
  let rest = Buffer.alloc(0);
  const frames = Buffer.alloc(4 * PIECE, "x");
  let filled = 0;
  const flush = () => {
    writeSync(to, frames, 0, filled);
    filled = 0;
  };
  for (const bytes of pieces(fd)) {
    whole.update(bytes);
    const lines = Buffer.concat([rest, bytes]);
    let from = 0;
    for (let past = lines.indexOf(10); past >= 0; past = lines.indexOf(10, from)) {
      const payload = lines.subarray(from, past);
      from = past + 1;
      end = chained(end, payload);
      if (filled + payload.length + more > frames.length) flush();
      payload.copy(frames, filled);
      crc32(frames.subarray(filled, filled + payload.length + more));
      filled += payload.length + more;
      lengths.push(payload.length);
    }
    rest = lines.subarray(from);
  }
  flush();
  whole.digest("hex");
  return { lengths, end };
}

/** Reads frames of these lengths again; returns the end of their chain. */
function readFrames(fd, lengths, more) {
  let end = BEGIN;
  let n = 0;
  let rest = Buffer.alloc(0);
  for (const bytes of pieces(fd)) {
    const frames = Buffer.concat([rest, bytes]);
    let from = 0;
    for (; n < lengths.length && from + lengths[n] + more <= frames.length; n++) {
      crc32(frames.subarray(from, from + lengths[n] + more));
      end = chained(end, frames.subarray(from, from + lengths[n]));
      from += lengths[n] + more;
    }
    rest = frames.subarray(from);
  }
  return end;
}

const work = TASKS[task](...given);
let rest = "";
let isFirst = true;
process.stdin.setEncoding("utf8").on("data", (chunk) => {
  rest += chunk;
  const requests = [];
  let from = 0;
  for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", from)) {
    requests.push(JSON.parse(rest.slice(from, end)));
    from = end + 1;
  }
  if (requests.length === 0) return;
  process.stdout.write(isFirst ? requests.map(shortly).join("") : work(requests, rest.slice(0, from)));
  rest = rest.slice(from);
  isFirst = false;
});
