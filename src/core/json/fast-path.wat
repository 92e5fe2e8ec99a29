;; Validates a line of JSON as it is usually written, 16 bytes at a time. fast-path.ts says what it promises, and fills the
;; two tables. `npm run assemble` makes fast-path-module.ts of this file.
(module
  ;; The memory, in bytes:
  ;;       0  the line, up to 2 MiB (ROOM), and 16 zeros, which stop whatever goes too far
  ;; 2097168  ESCAPES: for each byte after a backslash how many bytes the escape takes (2, or 6 for u); 0 for none
  ;; 2097424  DIGITS: for each byte whether it is a hexadecimal digit
  ;; 2097680  the byte that closes each open container, from the outermost on
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
            (then (return (i32.const -1))))))
      (local.set $at (i32.add (local.get $at) (local.get $found)))
      (br $next))
    (unreachable))

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
      ;; In an object a name comes first.
      (if (i32.eq (i32.load8_u offset=2097680 (local.get $depth)) (i32.const 0x7d (; } ;)))
        (then
          (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x22 (; " ;)))
            (then (return (i32.const -1))))
          (local.set $name (i64.load offset=1 align=1 (local.get $at)))
          ;; A name with an escape is for others to read.
          (loop $next
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $char (i32.load8_u (local.get $at)))
            (if (i32.or
                  (i32.lt_u (local.get $char) (i32.const 0x20))
                  (i32.eq (local.get $char) (i32.const 0x5c (; \ ;))))
              (then (return (i32.const -1))))
            (br_if $next (i32.ne (local.get $char) (i32.const 0x22 (; " ;)))))
          (if (i32.ne (i32.load8_u offset=1 (local.get $at)) (i32.const 0x3a (; : ;)))
            (then (return (i32.const -1))))
          (local.set $at (i32.add (local.get $at) (i32.const 2)))
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
        (local.set $char (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $value (i32.eq (local.get $char) (i32.const 0x2c (; , ;))))
        (if (i32.ne (local.get $char) (i32.load8_u offset=2097680 (local.get $depth)))
          (then (return (i32.const -1))))
        (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
        (br $close)))
    (unreachable)))
