;; Validates a line of JSON as it is usually written, 16 bytes at a time, finds the members of messages that lists show, and
;; reads the heads of many messages.
;; fast-path.ts says what it promises, and fills the two tables. `node scripts/assemble.js` makes fast-path-module.ts of this file.
(module
  ;; The memory, in bytes:
  ;;       0  the line, up to 2 MiB (ROOM), and 16 zeros, which stop whatever goes too far
  ;; 2097168  ESCAPES: for each byte after a backslash how many bytes the escape takes (2, or 6 for u); 0 for none
  ;; 2097424  DIGITS: for each byte whether it is a hexadecimal digit
  ;; 2097680  the byte that closes each open container, from the outermost on
  ;; 4194832  PLACES: start and end of each member that was found, as PLACE in fast-path.ts has them, 0 for none; then how
  ;;          many texts and calls there are, and the start and end of each call
  ;; 4195456  LINES: four numbers for each of up to 4,000 lines, as fast-path.ts has them
  (memory (export "memory") 65)

  ;; Returns the position after the quote that ends a string, or -1. `at`: inside of the string.
  (func $string (param $at i32) (result i32)
    (local $found i32)
    (local $bytes v128)
    (local $control v128)
    (local $quotes v128)
    (local $backslashes v128)
    ;; Constants within the loop are made anew each time, which takes a tenth longer.
    (local.set $control (i8x16.splat (i32.const 0x20)))
    (local.set $quotes (i8x16.splat (i32.const 0x22)))
    (local.set $backslashes (i8x16.splat (i32.const 0x5c)))
    (loop $next
      (local.set $bytes (v128.load align=1 (local.get $at)))
      ;; A bit for each of the 16 bytes that is a control character, a quote or a backslash.
      (local.set $found
        (i8x16.bitmask
          (v128.or
            (v128.or
              (i8x16.lt_u (local.get $bytes) (local.get $control))
              (i8x16.eq (local.get $bytes) (local.get $quotes)))
            (i8x16.eq (local.get $bytes) (local.get $backslashes)))))
      (if (i32.eqz (local.get $found))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br $next)))
      (local.set $at (i32.add (local.get $at) (i32.ctz (local.get $found))))
      (local.set $found (i32.load8_u (local.get $at)))
      (if (i32.eq (local.get $found) (i32.const 0x22 (; " ;)))
        (then (return (i32.add (local.get $at) (i32.const 1)))))
      (if (i32.ne (local.get $found) (i32.const 0x5c (; \ ;)))
        (then (return (i32.const -1))))
      (local.set $found (i32.load8_u offset=2097168 (i32.load8_u offset=1 (local.get $at))))
      (if (i32.eqz (local.get $found))
        (then (return (i32.const -1))))
      (if (i32.eq (local.get $found) (i32.const 6))
        (then
          (if (i32.eqz
                (i32.and
                  (i32.and (call $digit (local.get $at) (i32.const 2)) (call $digit (local.get $at) (i32.const 3)))
                  (i32.and (call $digit (local.get $at) (i32.const 4)) (call $digit (local.get $at) (i32.const 5)))))
            (then (return (i32.const -1))))
          ;; The escape of a surrogate, d8 to df, is unusual.
          (if (i32.and
                (i32.eq (i32.or (i32.load8_u offset=2 (local.get $at)) (i32.const 0x20)) (i32.const 0x64 (; d ;)))
                (i32.ge_u (i32.load8_u offset=3 (local.get $at)) (i32.const 0x38 (; 8 ;))))
            (then (return (i32.const -1))))))
      (local.set $at (i32.add (local.get $at) (local.get $found)))
      (br $next))
    (unreachable))

  ;; Returns the position of the first byte from `at` on that is no white space.
  (func $space (param $at i32) (result i32)
    (local $char i32)
    (loop $next
      (local.set $char (i32.load8_u (local.get $at)))
      (if (i32.or
            (i32.eq (local.get $char) (i32.const 0x20))
            (i32.or (i32.eq (local.get $char) (i32.const 0x09)) (i32.eq (local.get $char) (i32.const 0x0d))))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next))))
    (local.get $at))

  ;; Returns whether the byte at `at + offset` is a hexadecimal digit.
  (func $digit (param $at i32) (param $offset i32) (result i32)
    (i32.load8_u offset=2097424 (i32.load8_u (i32.add (local.get $at) (local.get $offset)))))

  ;; Returns the position after one or more decimal digits, or -1.
  (func $digits (param $at i32) (result i32)
    (local $from i32)
    (local.set $from (local.get $at))
    (loop $next
      (if (i32.lt_u (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30 (; 0 ;))) (i32.const 10))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next))))
    (select (i32.const -1) (local.get $at) (i32.eq (local.get $at) (local.get $from))))

  ;; Returns the position after a number, or -1.
  (func $number (param $at i32) (result i32)
    (local $from i32)
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2d (; - ;)))
      (then (local.set $at (i32.add (local.get $at) (i32.const 1)))))
    (local.set $from (local.get $at))
    (local.set $at (call $digits (local.get $at)))
    (if (i32.eq (local.get $at) (i32.const -1))
      (then (return (i32.const -1))))
    ;; 0 begins no other number.
    (if (i32.and
          (i32.eq (i32.load8_u (local.get $from)) (i32.const 0x30 (; 0 ;)))
          (i32.ne (i32.add (local.get $from) (i32.const 1)) (local.get $at)))
      (then (return (i32.const -1))))
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2e (; . ;)))
      (then
        (local.set $at (call $digits (i32.add (local.get $at) (i32.const 1))))
        (if (i32.eq (local.get $at) (i32.const -1))
          (then (return (i32.const -1))))))
    (if (i32.eq (i32.or (i32.load8_u (local.get $at)) (i32.const 0x20)) (i32.const 0x65 (; e, or E ;)))
      (then
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (if (i32.or
              (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2b (; + ;)))
              (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2d (; - ;))))
          (then (local.set $at (i32.add (local.get $at) (i32.const 1)))))
        (local.set $at (call $digits (local.get $at)))))
    (local.get $at))

  ;; Returns a bit for a member that must not be there twice in an entry, 0 for any other. `name`: the eight bytes after the
  ;; quote that begins the name, the first one lowest.
  (func $flag (param $name i64) (result i32)
    ;; type"
    (if (i64.eq (i64.and (local.get $name) (i64.const 0xffffffffff)) (i64.const 0x2265707974))
      (then (return (i32.const 1))))
    ;; id"
    (if (i64.eq (i64.and (local.get $name) (i64.const 0xffffff)) (i64.const 0x226469))
      (then (return (i32.const 2))))
    ;; parentId
    (if (i64.eq (local.get $name) (i64.const 0x6449746e65726170))
      (then (return (i32.const 4))))
    ;; message"
    (if (i64.eq (local.get $name) (i64.const 0x226567617373656d))
      (then (return (i32.const 8))))
    ;; customTy
    (if (i64.eq (local.get $name) (i64.const 0x79546d6f74737563))
      (then (return (i32.const 16))))
    ;; _batch"
    (if (i64.eq (i64.and (local.get $name) (i64.const 0xffffffffffffff)) (i64.const 0x2268637461625f))
      (then (return (i32.const 32))))
    (i32.const 0))

  ;; Validates the line from `start` to `end`. Returns the position of the value of `message`, counted from `start`, where
  ;; that is the last member; 0 where it is not; and -1 where the line is malformed, or not as it is usually written.
  (func (export "read") (param $start i32) (param $end i32) (result i32)
    (local $at i32)
    (local $char i32)
    (local $depth i32)
    (local $seen i32)
    (local $flag i32)
    (local $message i32)
    (local $name i64)
    (local.set $at (local.get $start))
    ;; Nothing closes the outermost value but the end of the line.
    (i32.store8 offset=2097680 (i32.const 0) (i32.const 0))
    (loop $value
      (if (i32.le_u (i32.load8_u (local.get $at)) (i32.const 0x20))
        (then (local.set $at (call $space (local.get $at)))))
      ;; In an object a name comes first.
      (if (i32.eq (i32.load8_u offset=2097680 (local.get $depth)) (i32.const 0x7d (; } ;)))
        (then
          (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x22 (; " ;)))
            (then (return (i32.const -1))))
          (local.set $name (i64.load offset=1 align=1 (local.get $at)))
          ;; $piBlob"
          (if (i64.eq (local.get $name) (i64.const 0x22626f6c42697024))
            (then (return (i32.const -1))))
          ;; A name with an escape is for others to read.
          (loop $next
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $char (i32.load8_u (local.get $at)))
            (if (i32.or
                  (i32.lt_u (local.get $char) (i32.const 0x20))
                  (i32.eq (local.get $char) (i32.const 0x5c (; \ ;))))
              (then (return (i32.const -1))))
            (br_if $next (i32.ne (local.get $char) (i32.const 0x22 (; " ;)))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (if (i32.le_u (i32.load8_u (local.get $at)) (i32.const 0x20))
            (then (local.set $at (call $space (local.get $at)))))
          (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x3a (; : ;)))
            (then (return (i32.const -1))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (if (i32.le_u (i32.load8_u (local.get $at)) (i32.const 0x20))
            (then (local.set $at (call $space (local.get $at)))))
          (local.set $flag (i32.const 0))
          (if (i32.eq (local.get $depth) (i32.const 1))
            (then
              (local.set $flag (call $flag (local.get $name)))
              (local.set $message (i32.const 0))
              (if (i32.eq (local.get $flag) (i32.const 8 (; message ;)))
                (then (local.set $message (i32.sub (local.get $at) (local.get $start)))))))
          (if (i32.and (i32.eq (local.get $depth) (i32.const 2)) (i32.ne (local.get $message) (i32.const 0)))
            (then
              ;; role"
              (if (i64.eq (i64.and (local.get $name) (i64.const 0xffffffffff)) (i64.const 0x22656c6f72))
                (then (local.set $flag (i32.const 64))))))
          (if (i32.and (local.get $seen) (local.get $flag))
            (then (return (i32.const -1))))
          (local.set $seen (i32.or (local.get $seen) (local.get $flag)))))

      (local.set $char (i32.load8_u (local.get $at)))
      (block $done
        (if (i32.eq (local.get $char) (i32.const 0x22 (; " ;)))
          (then
            ;; blob:sha
            (if (i64.eq (i64.load offset=1 align=1 (local.get $at)) (i64.const 0x6168733a626f6c62))
              (then (return (i32.const -1))))
            (local.set $at (call $string (i32.add (local.get $at) (i32.const 1))))
            (if (i32.eq (local.get $at) (i32.const -1))
              (then (return (i32.const -1))))
            (br $done)))
        ;; [ and { differ in one bit, and each is two less than what closes it.
        (if (i32.eq (i32.and (local.get $char) (i32.const 0xdf)) (i32.const 0x5b (; [ ;)))
          (then
            (if (i32.eq (i32.load8_u offset=1 (local.get $at)) (i32.add (local.get $char) (i32.const 2)))
              (then
                (local.set $at (i32.add (local.get $at) (i32.const 2)))
                (br $done)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $depth (i32.add (local.get $depth) (i32.const 1)))
            (i32.store8 offset=2097680 (local.get $depth) (i32.add (local.get $char) (i32.const 2)))
            (br $value)))
        ;; Below : are the digits and the minus sign; $number finds the others out.
        (if (i32.lt_u (local.get $char) (i32.const 0x3a (; : ;)))
          (then
            (local.set $at (call $number (local.get $at)))
            (if (i32.eq (local.get $at) (i32.const -1))
              (then (return (i32.const -1))))
            (br $done)))
        ;; true, null, or fals and e
        (local.set $char (i32.load align=1 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br_if $done (i32.eq (local.get $char) (i32.const 0x65757274)))
        (br_if $done (i32.eq (local.get $char) (i32.const 0x6c6c756e)))
        (if (i32.or
              (i32.ne (local.get $char) (i32.const 0x736c6166))
              (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x65)))
          (then (return (i32.const -1))))
        (local.set $at (i32.add (local.get $at) (i32.const 1))))

      ;; After a value comes a comma, or the end of one container after the other.
      (loop $close
        (if (i32.eqz (local.get $depth))
          (then
            (return
              (select (local.get $message) (i32.const -1) (i32.eq (local.get $at) (local.get $end))))))
        (if (i32.le_u (i32.load8_u (local.get $at)) (i32.const 0x20))
          (then
            (local.set $at (call $space (local.get $at)))
            ;; The message does not end where the line does.
            (if (i32.eq (local.get $depth) (i32.const 1))
              (then (local.set $message (i32.const 0))))))
        (local.set $char (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $value (i32.eq (local.get $char) (i32.const 0x2c (; , ;))))
        (if (i32.ne (local.get $char) (i32.load8_u offset=2097680 (local.get $depth)))
          (then (return (i32.const -1))))
        (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
        (br $close)))
    (unreachable))

  ;; Returns the position after the value at `at` in a line that ends at `end`, or -1 where the line is not JSON, or white
  ;; space is there.
  (func $past (param $at i32) (param $end i32) (result i32)
    (local $char i32)
    (local $depth i32)
    (local $found i32)
    (local $bytes v128)
    (local $cased v128)
    (local $quotes v128)
    (local $opening v128)
    (local $closing v128)
    (local.set $char (i32.load8_u (local.get $at)))
    (if (i32.eq (local.get $char) (i32.const 0x22 (; " ;)))
      (then (return (call $string (i32.add (local.get $at) (i32.const 1))))))
    (if (i32.ne (i32.and (local.get $char) (i32.const 0xdf)) (i32.const 0x5b (; [ or { ;)))
      (then
        (if (i32.le_u (local.get $char) (i32.const 0x20))
          (then (return (i32.const -1))))
        ;; A number or a word ends before a comma, what closes a container, or white space.
        (loop $next
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (local.set $char (i32.load8_u (local.get $at)))
          (br_if $next
            (i32.and
              (i32.and
                (i32.gt_u (local.get $char) (i32.const 0x20))
                (i32.ne (local.get $char) (i32.const 0x2c (; , ;))))
              (i32.ne (i32.or (local.get $char) (i32.const 0x20)) (i32.const 0x7d (; ] or } ;))))))
        (return (local.get $at))))
    (local.set $quotes (i8x16.splat (i32.const 0x22)))
    ;; [ and { differ in one bit, and so do ] and }.
    (local.set $cased (i8x16.splat (i32.const 0x20)))
    (local.set $opening (i8x16.splat (i32.const 0x7b)))
    (local.set $closing (i8x16.splat (i32.const 0x7d)))
    (loop $next
      (if (i32.ge_u (local.get $at) (local.get $end))
        (then (return (i32.const -1))))
      (local.set $bytes (v128.load align=1 (local.get $at)))
      (local.set $found (i8x16.bitmask (i8x16.eq (local.get $bytes) (local.get $quotes))))
      (local.set $bytes (v128.or (local.get $bytes) (local.get $cased)))
      (local.set $found
        (i32.or
          (local.get $found)
          (i8x16.bitmask
            (v128.or
              (i8x16.eq (local.get $bytes) (local.get $opening))
              (i8x16.eq (local.get $bytes) (local.get $closing))))))
      (if (i32.eqz (local.get $found))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br $next)))
      (local.set $at (i32.add (local.get $at) (i32.ctz (local.get $found))))
      (local.set $char (i32.load8_u (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (if (i32.eq (local.get $char) (i32.const 0x22 (; " ;)))
        (then
          (local.set $at (call $string (local.get $at)))
          (br_if $next (i32.ne (local.get $at) (i32.const -1)))
          (return (i32.const -1))))
      (if (i32.eq (i32.and (local.get $char) (i32.const 0xdf)) (i32.const 0x5b (; [ ;)))
        (then
          (local.set $depth (i32.add (local.get $depth) (i32.const 1)))
          (br $next)))
      (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
      (br_if $next (local.get $depth)))
    (local.get $at))

  ;; Returns the position of the value of the member whose name begins at `at`, or -1 where that has an escape or white
  ;; space around it.
  (func $value (param $at i32) (result i32)
    (local $char i32)
    (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x22 (; " ;)))
      (then (return (i32.const -1))))
    (loop $next
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $char (i32.load8_u (local.get $at)))
      (if (i32.or
            (i32.lt_u (local.get $char) (i32.const 0x20))
            (i32.eq (local.get $char) (i32.const 0x5c (; \ ;))))
        (then (return (i32.const -1))))
      (br_if $next (i32.ne (local.get $char) (i32.const 0x22 (; " ;)))))
    (select
      (i32.add (local.get $at) (i32.const 2))
      (i32.const -1)
      (i32.eq (i32.load8_u offset=1 (local.get $at)) (i32.const 0x3a (; : ;)))))

  ;; Returns where in PLACES the member of a message belongs whose name begins at `at` and whose value is at `value`; 0 for
  ;; members that are not shown, and 80 for content.
  (func $slot (param $at i32) (param $value i32) (result i32)
    (local $length i32)
    (local $name i64)
    (local.set $length (i32.sub (i32.sub (local.get $value) (local.get $at)) (i32.const 3)))
    (local.set $name (i64.load offset=1 align=1 (local.get $at)))
    (if (i32.eq (local.get $length) (i32.const 4))
      (then
        ;; role
        (return
          (select
            (i32.const 16)
            (i32.const 0)
            (i64.eq (i64.and (local.get $name) (i64.const 0xffffffff)) (i64.const 0x656c6f72))))))
    (if (i32.eq (local.get $length) (i32.const 7))
      (then
        ;; content"
        (if (i64.eq (local.get $name) (i64.const 0x22746e65746e6f63))
          (then (return (i32.const 80))))
        ;; isError"
        (if (i64.eq (local.get $name) (i64.const 0x22726f7272457369))
          (then (return (i32.const 32))))
        ;; command"
        (return
          (select (i32.const 64) (i32.const 0) (i64.eq (local.get $name) (i64.const 0x22646e616d6d6f63))))))
    (if (i32.eq (local.get $length) (i32.const 8))
      (then
        ;; toolName
        (if (i64.eq (local.get $name) (i64.const 0x656d614e6c6f6f74))
          (then (return (i32.const 24))))
        ;; exitCode
        (return
          (select (i32.const 40) (i32.const 0) (i64.eq (local.get $name) (i64.const 0x65646f4374697865))))))
    (if (i32.eq (local.get $length) (i32.const 9))
      (then
        ;; cancelle and d
        (return
          (select
            (i32.const 48)
            (i32.const 0)
            (i32.and
              (i64.eq (local.get $name) (i64.const 0x656c6c65636e6163))
              (i32.eq (i32.load8_u offset=9 (local.get $at)) (i32.const 0x64)))))))
    (if (i32.eq (local.get $length) (i32.const 10))
      (then
        ;; stopReas and on
        (return
          (select
            (i32.const 56)
            (i32.const 0)
            (i32.and
              (i64.eq (local.get $name) (i64.const 0x73616552706f7473))
              (i32.eq (i32.load16_u offset=9 align=1 (local.get $at)) (i32.const 0x6e6f)))))))
    (i32.const 0))

  ;; Notes the start and end of a member.
  (func $note (param $slot i32) (param $start i32) (param $end i32)
    (i32.store offset=4194832 (local.get $slot) (local.get $start))
    (i32.store offset=4194836 (local.get $slot) (local.get $end)))

  ;; Finds the members of the line of a message, which is known to be JSON and lies from 0 to `end`. Returns 1, or 0 where
  ;; it is not as it is usually written, or has members of other entries.
  (func (export "find") (param $end i32) (result i32)
    (local $at i32)
    (local $name i32)
    (local $value i32)
    (local $flag i32)
    (local $seen i32)
    (loop $next
      (i64.store offset=4194832 (local.get $at) (i64.const 0))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 88))))
    (local.set $at (i32.const 0))
    (if (i32.ne (i32.load8_u (i32.const 0)) (i32.const 0x7b (; { ;)))
      (then (return (i32.const 0))))
    (loop $next
      (local.set $name (i32.add (local.get $at) (i32.const 1)))
      (local.set $value (call $value (local.get $name)))
      (if (i32.eq (local.get $value) (i32.const -1))
        (then (return (i32.const 0))))
      (local.set $flag (call $flag (i64.load offset=1 align=1 (local.get $name))))
      (if (i32.eq (local.get $flag) (i32.const 8 (; message ;)))
        (then
          (if (i32.or
                (local.get $seen)
                (i32.ne (i32.load8_u (local.get $value)) (i32.const 0x7b (; { ;))))
            (then (return (i32.const 0))))
          (local.set $seen (i32.const 1))
          (local.set $at (call $message (local.get $value) (local.get $end))))
        (else
          (local.set $at (call $past (local.get $value) (local.get $end)))
          (if (i32.or (i32.eqz (local.get $flag)) (i32.eq (local.get $flag) (i32.const 16 (; customType ;))))
            (then
              ;; timestam and p"
              (if (i32.or
                    (i64.ne (i64.load offset=1 align=1 (local.get $name)) (i64.const 0x6d617473656d6974))
                    (i32.ne (i32.load16_u offset=9 align=1 (local.get $name)) (i32.const 0x2270)))
                (then (return (i32.const 0))))
              (call $note (i32.const 8) (local.get $value) (local.get $at))))))
      (if (i32.eq (local.get $at) (i32.const -1))
        (then (return (i32.const 0))))
      (br_if $next (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2c (; , ;)))))
    (i32.and
      (local.get $seen)
      (i32.and
        (i32.eq (local.get $at) (i32.sub (local.get $end) (i32.const 1)))
        (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x7d (; } ;))))))

  ;; Returns the position after a message, whose members it notes, or -1 where it is unusual.
  (func $message (param $at i32) (param $end i32) (result i32)
    (local $name i32)
    (local $value i32)
    (local $slot i32)
    (if (i32.eq (i32.load8_u offset=1 (local.get $at)) (i32.const 0x7d (; } ;)))
      (then (return (i32.add (local.get $at) (i32.const 2)))))
    (loop $next
      (local.set $name (i32.add (local.get $at) (i32.const 1)))
      (local.set $value (call $value (local.get $name)))
      (if (i32.eq (local.get $value) (i32.const -1))
        (then (return (i32.const -1))))
      (local.set $slot (call $slot (local.get $name) (local.get $value)))
      (if (i32.eq (local.get $slot) (i32.const 80 (; content ;)))
        (then (local.set $at (call $content (local.get $value) (local.get $end))))
        (else
          (local.set $at (call $past (local.get $value) (local.get $end)))
          (call $note (local.get $slot) (local.get $value) (local.get $at))))
      (if (i32.eq (local.get $at) (i32.const -1))
        (then (return (i32.const -1))))
      (br_if $next (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2c (; , ;)))))
    (select
      (i32.add (local.get $at) (i32.const 1))
      (i32.const -1)
      (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x7d (; } ;)))))

  ;; Does so for a content. The last of several in a message counts.
  (func $content (param $open i32) (param $end i32) (result i32)
    (local $at i32)
    (call $note (i32.const 72 (; text ;)) (i32.const 0) (i32.const 0))
    (call $note (i32.const 80 (; how many texts and calls ;)) (i32.const 0) (i32.const 0))
    (if (i32.ne (i32.load8_u (local.get $open)) (i32.const 0x5b (; [ ;)))
      (then
        (local.set $at (call $past (local.get $open) (local.get $end)))
        (if (i32.eq (i32.load8_u (local.get $open)) (i32.const 0x22 (; " ;)))
          (then
            (call $note (i32.const 72) (local.get $open) (local.get $at))
            (call $note (i32.const 80) (i32.const 1) (i32.const 0))))
        (return (local.get $at))))
    (if (i32.eq (i32.load8_u offset=1 (local.get $open)) (i32.const 0x5d (; ] ;)))
      (then (return (i32.add (local.get $open) (i32.const 2)))))
    (local.set $at (local.get $open))
    (loop $next
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x7b (; { ;)))
        (then (local.set $at (call $block (local.get $at) (local.get $end))))
        (else (local.set $at (call $past (local.get $at) (local.get $end)))))
      (if (i32.eq (local.get $at) (i32.const -1))
        (then (return (i32.const -1))))
      (br_if $next (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2c (; , ;)))))
    (select
      (i32.add (local.get $at) (i32.const 1))
      (i32.const -1)
      (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x5d (; ] ;)))))

  ;; Does so for a block of a content.
  (func $block (param $open i32) (param $end i32) (result i32)
    (local $at i32)
    (local $name i32)
    (local $value i32)
    (local $start i64)
    (local $type i32)
    (local $typeEnd i32)
    (local $text i32)
    (local $textEnd i32)
    (local $count i32)
    (local.set $at (local.get $open))
    (if (i32.eq (i32.load8_u offset=1 (local.get $at)) (i32.const 0x7d (; } ;)))
      (then (return (i32.add (local.get $at) (i32.const 2)))))
    (loop $next
      (local.set $name (i32.add (local.get $at) (i32.const 1)))
      (local.set $value (call $value (local.get $name)))
      (if (i32.eq (local.get $value) (i32.const -1))
        (then (return (i32.const -1))))
      (local.set $at (call $past (local.get $value) (local.get $end)))
      (if (i32.eq (local.get $at) (i32.const -1))
        (then (return (i32.const -1))))
      (local.set $start (i64.and (i64.load offset=1 align=1 (local.get $name)) (i64.const 0xffffffffff)))
      ;; type"
      (if (i64.eq (local.get $start) (i64.const 0x2265707974))
        (then
          (local.set $type (local.get $value))
          (local.set $typeEnd (local.get $at))))
      ;; text"
      (if (i64.eq (local.get $start) (i64.const 0x2274786574))
        (then
          (local.set $text (local.get $value))
          (local.set $textEnd (local.get $at))))
      (br_if $next (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2c (; , ;)))))
    (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x7d (; } ;)))
      (then (return (i32.const -1))))
    (local.set $at (i32.add (local.get $at) (i32.const 1)))
    (if (i32.eqz (local.get $type))
      (then (return (local.get $at))))
    (local.set $start (i64.load align=1 (local.get $type)))
    ;; "text"
    (if (i64.eq (i64.and (local.get $start) (i64.const 0xffffffffffff)) (i64.const 0x227478657422))
      (then
        (if (i32.eqz (local.get $text))
          (then (return (local.get $at))))
        (if (i32.ne (i32.load8_u (local.get $text)) (i32.const 0x22 (; " ;)))
          (then (return (local.get $at))))
        (call $note (i32.const 72) (local.get $text) (local.get $textEnd))
        (i32.store offset=4194832 (i32.const 80)
          (i32.add (i32.load offset=4194832 (i32.const 80)) (i32.const 1)))
        (return (local.get $at))))
    ;; "toolCal and l"
    (if (i32.and
          (i64.eq (local.get $start) (i64.const 0x6c61436c6f6f7422))
          (i32.eq (i32.load16_u offset=8 align=1 (local.get $type)) (i32.const 0x226c)))
      (then
        (local.set $count (i32.load offset=4194836 (i32.const 80)))
        (if (i32.eq (local.get $count) (i32.const 64 (; MAX_CALLS ;)))
          (then (return (i32.const -1))))
        (call $note
          (i32.add (i32.const 88) (i32.shl (local.get $count) (i32.const 3)))
          (local.get $open)
          (local.get $at))
        (i32.store offset=4194836 (i32.const 80) (i32.add (local.get $count) (i32.const 1)))
        (return (local.get $at))))
    ;; A type with an escape may be any.
    (loop $next
      (if (i32.eq (i32.load8_u (local.get $type)) (i32.const 0x5c (; \ ;)))
        (then (return (i32.const -1))))
      (local.set $type (i32.add (local.get $type) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $type) (local.get $typeEnd))))
    (local.get $at))

  ;; Returns the position of the first line feed from `at` on, or one that is not before `end`.
  (func $feed (param $at i32) (param $end i32) (result i32)
    (local $found i32)
    (local $feeds v128)
    (local.set $feeds (i8x16.splat (i32.const 0x0a)))
    (loop $next
      (local.set $found (i8x16.bitmask (i8x16.eq (v128.load align=1 (local.get $at)) (local.get $feeds))))
      (if (i32.eqz (local.get $found))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br_if $next (i32.lt_u (local.get $at) (local.get $end)))
          (return (local.get $at)))))
    (i32.add (local.get $at) (i32.ctz (local.get $found))))

  ;; Returns the value of the eight lower-case hexadecimal digits at `at`, or -1 where there are others.
  (func $packed (param $at i32) (result i64)
    (local $bytes v128)
    (local $isDigit v128)
    (local $halves i64)
    (local.set $bytes (v128.load64_zero align=1 (local.get $at)))
    (local.set $isDigit
      (i8x16.lt_u
        (i8x16.sub (local.get $bytes) (i8x16.splat (i32.const 0x30 (; 0 ;))))
        (i8x16.splat (i32.const 10))))
    (if (i32.ne
          (i32.and
            (i8x16.bitmask
              (v128.or
                (local.get $isDigit)
                (i8x16.lt_u
                  (i8x16.sub (local.get $bytes) (i8x16.splat (i32.const 0x61 (; a ;))))
                  (i8x16.splat (i32.const 6)))))
            (i32.const 0xff))
          (i32.const 0xff))
      (then (return (i64.const -1))))
    (local.set $bytes
      (v128.bitselect
        (i8x16.sub (local.get $bytes) (i8x16.splat (i32.const 0x30)))
        (i8x16.sub (local.get $bytes) (i8x16.splat (i32.const 0x57)))
        (local.get $isDigit)))
    ;; The last digit comes first, and two of them make a byte, two of these a half, and these the value.
    (local.set $halves
      (i64x2.extract_lane 0
        (i8x16.shuffle 7 6 5 4 3 2 1 0 8 9 10 11 12 13 14 15 (local.get $bytes) (local.get $bytes))))
    (local.set $halves
      (i64.and
        (i64.or (local.get $halves) (i64.shr_u (local.get $halves) (i64.const 4)))
        (i64.const 0x00ff00ff00ff00ff)))
    (local.set $halves
      (i64.and
        (i64.or (local.get $halves) (i64.shr_u (local.get $halves) (i64.const 8)))
        (i64.const 0x0000ffff0000ffff)))
    (i64.and
      (i64.or (local.get $halves) (i64.shr_u (local.get $halves) (i64.const 16)))
      (i64.const 0xffffffff)))

  ;; Reads the head of the line from `at` to the line feed at `feed`, and notes its ids. Returns 1, 2 or 3 for the roles user,
  ;; assistant and toolResult, with 256 more for a message without a parent; 0 for a line that is written in another way.
  (func $head (param $at i32) (param $feed i32) (param $note i32) (result i32)
    (local $id i64)
    (local $parent i64)
    (local $role i32)
    (local $char i32)
    ;; {"type":"message","id":"
    (if (i64.ne (i64.load align=1 (local.get $at)) (i64.const 0x3a2265707974227b))
      (then (return (i32.const 0))))
    (if (i64.ne (i64.load offset=8 align=1 (local.get $at)) (i64.const 0x6567617373656d22))
      (then (return (i32.const 0))))
    (if (i64.ne (i64.load offset=16 align=1 (local.get $at)) (i64.const 0x223a226469222c22))
      (then (return (i32.const 0))))
    (local.set $id (call $packed (i32.add (local.get $at) (i32.const 24))))
    ;; ","parentId":
    (if (i64.ne (i64.load offset=32 align=1 (local.get $at)) (i64.const 0x6e65726170222c22))
      (then (return (i32.const 0))))
    (if (i32.ne (i32.load offset=40 align=1 (local.get $at)) (i32.const 0x22644974))
      (then (return (i32.const 0))))
    (if (i32.or
          (i64.eq (local.get $id) (i64.const -1))
          (i32.ne (i32.load8_u offset=44 (local.get $at)) (i32.const 0x3a (; : ;))))
      (then (return (i32.const 0))))
    (if (i32.eq (i32.load offset=45 align=1 (local.get $at)) (i32.const 0x6c6c756e))
      (then
        (local.set $role (i32.const 256))
        (local.set $at (i32.add (local.get $at) (i32.const 49))))
      (else
        (local.set $parent (call $packed (i32.add (local.get $at) (i32.const 46))))
        (if (i32.or
              (i64.eq (local.get $parent) (i64.const -1))
              (i32.or
                (i32.ne (i32.load8_u offset=45 (local.get $at)) (i32.const 0x22 (; " ;)))
                (i32.ne (i32.load8_u offset=54 (local.get $at)) (i32.const 0x22 (; " ;)))))
          (then (return (i32.const 0))))
        (local.set $at (i32.add (local.get $at) (i32.const 55)))))
    ;; ,"timestamp":"
    (if (i64.ne (i64.load align=1 (local.get $at)) (i64.const 0x7473656d6974222c))
      (then (return (i32.const 0))))
    (if (i32.ne (i32.load offset=8 align=1 (local.get $at)) (i32.const 0x22706d61))
      (then (return (i32.const 0))))
    (if (i32.ne (i32.load16_u offset=12 align=1 (local.get $at)) (i32.const 0x223a))
      (then (return (i32.const 0))))
    (local.set $at (i32.add (local.get $at) (i32.const 14)))
    (loop $next
      (local.set $char (i32.load8_u (local.get $at)))
      (if (i32.or
            (i32.lt_u (local.get $char) (i32.const 0x20))
            (i32.eq (local.get $char) (i32.const 0x5c (; \ ;))))
        (then (return (i32.const 0))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.ne (local.get $char) (i32.const 0x22 (; " ;)))))
    ;; ,"message":{"role":"
    (if (i64.ne (i64.load align=1 (local.get $at)) (i64.const 0x67617373656d222c))
      (then (return (i32.const 0))))
    (if (i64.ne (i64.load offset=8 align=1 (local.get $at)) (i64.const 0x6c6f72227b3a2265))
      (then (return (i32.const 0))))
    (if (i32.ne (i32.load offset=16 align=1 (local.get $at)) (i32.const 0x223a2265))
      (then (return (i32.const 0))))
    (local.set $at (i32.add (local.get $at) (i32.const 20)))
    ;; user"
    (if (i64.eq
          (i64.and (i64.load align=1 (local.get $at)) (i64.const 0xffffffffff))
          (i64.const 0x2272657375))
      (then
        (local.set $role (i32.or (local.get $role) (i32.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 5)))))
    ;; assistan and t"
    (if (i32.and
          (i64.eq (i64.load align=1 (local.get $at)) (i64.const 0x6e61747369737361))
          (i32.eq (i32.load16_u offset=8 align=1 (local.get $at)) (i32.const 0x2274)))
      (then
        (local.set $role (i32.or (local.get $role) (i32.const 2)))
        (local.set $at (i32.add (local.get $at) (i32.const 10)))))
    ;; toolResu and ult"
    (if (i32.and
          (i64.eq (i64.load align=1 (local.get $at)) (i64.const 0x757365526c6f6f74))
          (i32.eq (i32.load offset=7 align=1 (local.get $at)) (i32.const 0x22746c75)))
      (then
        (local.set $role (i32.or (local.get $role) (i32.const 3)))
        (local.set $at (i32.add (local.get $at) (i32.const 11)))))
    ;; ,"role": once more
    (if (i64.eq (i64.load align=1 (local.get $at)) (i64.const 0x3a22656c6f72222c))
      (then (return (i32.const 0))))
    ;; The line ends with a number and }}, and the name before it is none of a head: its last letter is not that of role.
    (if (i32.ne (i32.load16_u align=1 (i32.sub (local.get $feed) (i32.const 2))) (i32.const 0x7d7d))
      (then (return (i32.const 0))))
    (local.set $at (i32.sub (local.get $feed) (i32.const 2)))
    (loop $next
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (local.set $char (i32.load8_u (local.get $at)))
      (br_if $next (i32.lt_u (i32.sub (local.get $char) (i32.const 0x30)) (i32.const 10))))
    (if (i32.or
          (i32.eq (local.get $at) (i32.sub (local.get $feed) (i32.const 3)))
          (i32.or
            (i32.ne (i32.load16_u align=1 (i32.sub (local.get $at) (i32.const 1))) (i32.const 0x3a22))
            (i32.eq (i32.load8_u (i32.sub (local.get $at) (i32.const 2))) (i32.const 0x65 (; e ;)))))
      (then (return (i32.const 0))))
    (i32.store offset=4195460 (local.get $note) (i32.wrap_i64 (local.get $id)))
    (i32.store offset=4195464 (local.get $note) (i32.wrap_i64 (local.get $parent)))
    ;; Without a role, there is none of these.
    (select (local.get $role) (i32.const 0) (i32.and (local.get $role) (i32.const 3))))

  ;; Notes the lines from 0 to `end`, 4,000 of them at most, with the heads of those that are messages as they are usually
  ;; written. Returns how many there are.
  (func (export "heads") (param $end i32) (result i32)
    (local $at i32)
    (local $feed i32)
    (local $note i32)
    (loop $next
      (local.set $feed (call $feed (local.get $at) (local.get $end)))
      (if (i32.lt_u (local.get $feed) (local.get $end))
        (then
          (i32.store offset=4195456 (local.get $note) (local.get $feed))
          (i32.store offset=4195468 (local.get $note)
            (call $head (local.get $at) (local.get $feed) (local.get $note)))
          (local.set $note (i32.add (local.get $note) (i32.const 16)))
          (local.set $at (i32.add (local.get $feed) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $note) (i32.const 64000))))))
    (i32.shr_u (local.get $note) (i32.const 4))))
