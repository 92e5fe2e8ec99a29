;; Computes CRC-32C 16 bytes at a time. crc32c.ts says what it promises, and fills the tables. `node scripts/assemble.js` makes
;; crc32c-module.ts of this file.
(module
  ;; The memory, in bytes:
  ;;     0  sixteen tables of 256 values: what a byte does to the checksum with 0, 1, ... 15 bytes after it
  ;; 16384  the bytes, 1 MiB
  (memory (export "memory") 17)

  ;; Returns the CRC-32C of the bytes from `at` to `end`, which are places in the memory. The sixteen places in tables are
  ;; written out: V8 of Node 20 does not put a function in place of its call, and with calls this takes three times as long.
  (func (export "crc") (param $at i32) (param $end i32) (result i32)
    (local $crc i32)
    (local $first i32)
    (local $second i32)
    (local $third i32)
    (local $fourth i32)
    (local.set $crc (i32.const -1))
    (block $few
      (loop $next
        (br_if $few (i32.gt_u (i32.add (local.get $at) (i32.const 16)) (local.get $end)))
        (local.set $first (i32.xor (local.get $crc) (i32.load align=1 (local.get $at))))
        (local.set $second (i32.load offset=4 align=1 (local.get $at)))
        (local.set $third (i32.load offset=8 align=1 (local.get $at)))
        (local.set $fourth (i32.load offset=12 align=1 (local.get $at)))
        (local.set $crc
          (i32.xor
            (i32.xor
              (i32.xor
                (i32.xor
                  (i32.load offset=15360 (i32.and (i32.shl (local.get $first) (i32.const 2)) (i32.const 0x3fc)))
                  (i32.load offset=14336 (i32.and (i32.shr_u (local.get $first) (i32.const 6)) (i32.const 0x3fc))))
                (i32.xor
                  (i32.load offset=13312 (i32.and (i32.shr_u (local.get $first) (i32.const 14)) (i32.const 0x3fc)))
                  (i32.load offset=12288 (i32.and (i32.shr_u (local.get $first) (i32.const 22)) (i32.const 0x3fc)))))
              (i32.xor
                (i32.xor
                  (i32.load offset=11264 (i32.and (i32.shl (local.get $second) (i32.const 2)) (i32.const 0x3fc)))
                  (i32.load offset=10240 (i32.and (i32.shr_u (local.get $second) (i32.const 6)) (i32.const 0x3fc))))
                (i32.xor
                  (i32.load offset=9216 (i32.and (i32.shr_u (local.get $second) (i32.const 14)) (i32.const 0x3fc)))
                  (i32.load offset=8192 (i32.and (i32.shr_u (local.get $second) (i32.const 22)) (i32.const 0x3fc))))))
            (i32.xor
              (i32.xor
                (i32.xor
                  (i32.load offset=7168 (i32.and (i32.shl (local.get $third) (i32.const 2)) (i32.const 0x3fc)))
                  (i32.load offset=6144 (i32.and (i32.shr_u (local.get $third) (i32.const 6)) (i32.const 0x3fc))))
                (i32.xor
                  (i32.load offset=5120 (i32.and (i32.shr_u (local.get $third) (i32.const 14)) (i32.const 0x3fc)))
                  (i32.load offset=4096 (i32.and (i32.shr_u (local.get $third) (i32.const 22)) (i32.const 0x3fc)))))
              (i32.xor
                (i32.xor
                  (i32.load offset=3072 (i32.and (i32.shl (local.get $fourth) (i32.const 2)) (i32.const 0x3fc)))
                  (i32.load offset=2048 (i32.and (i32.shr_u (local.get $fourth) (i32.const 6)) (i32.const 0x3fc))))
                (i32.xor
                  (i32.load offset=1024 (i32.and (i32.shr_u (local.get $fourth) (i32.const 14)) (i32.const 0x3fc)))
                  (i32.load offset=0 (i32.and (i32.shr_u (local.get $fourth) (i32.const 22)) (i32.const 0x3fc))))))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next)))
    (block $none
      (loop $next
        (br_if $none (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $crc
          (i32.xor
            (i32.shr_u (local.get $crc) (i32.const 8))
            (i32.load
              (i32.and
                (i32.shl (i32.xor (local.get $crc) (i32.load8_u (local.get $at))) (i32.const 2))
                (i32.const 0x3fc)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.xor (local.get $crc) (i32.const -1))))
