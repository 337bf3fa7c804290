// NEON's instructions (tile-inl.h says what is asked for), with the dot product where the file that
// includes this is compiled for processors that have it. In an unnamed namespace: each of the files
// that include it is compiled for other processors.
#pragma once

#include <arm_neon.h>

namespace temper::kernels {
namespace {

struct Neon {
  using Ints = int32x4_t;
  using Floats = float32x4_t;
  static constexpr bool kReadsPlanes = false;
  static constexpr int kLanes = 4, kPanel = 16, kTileRows = 4, kOffset = 0;

  static Ints set(int x) { return vdupq_n_s32(x); }
  static Ints load(const unsigned char* from) { return vreinterpretq_s32_u8(vld1q_u8(from)); }
  static void store(Ints x, unsigned char* to) { vst1q_u8(to, vreinterpretq_u8_s32(x)); }
  static Ints broadcast(const signed char* four) {
    int x;
    __builtin_memcpy(&x, four, 4);
    return vdupq_n_s32(x);
  }
  struct Table {
    int8x16_t bytes;
    explicit Table(const signed char* table) : bytes(table ? vld1q_s8(table) : vdupq_n_s8(0)) {}
  };

  static void eight(const unsigned char* codes, Ints* out) {
    const uint8x16_t a = vld1q_u8(codes), b = vld1q_u8(codes + 16), c = vld1q_u8(codes + 32),
                     d = vld1q_u8(codes + 48);
    const uint16x8_t ab = vreinterpretq_u16_u8(vzip1q_u8(a, b)),
                     ab_upper = vreinterpretq_u16_u8(vzip2q_u8(a, b)),
                     cd = vreinterpretq_u16_u8(vzip1q_u8(c, d)),
                     cd_upper = vreinterpretq_u16_u8(vzip2q_u8(c, d));
    out[0] = vreinterpretq_s32_u16(vzip1q_u16(ab, cd));
    out[1] = vreinterpretq_s32_u16(vzip2q_u16(ab, cd));
    out[2] = vreinterpretq_s32_u16(vzip1q_u16(ab_upper, cd_upper));
    out[3] = vreinterpretq_s32_u16(vzip2q_u16(ab_upper, cd_upper));
  }
  // Four indices of four rows stand together, and in the upper halves of the bytes those of eight
  // rows further (four_bits_place).
  static void four(const Table& table, const unsigned char* codes, Ints* out) {
    static constexpr unsigned char kTurned[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                  2, 6, 10, 14, 3, 7, 11, 15};
    const uint8x16_t turned = vld1q_u8(kTurned), mask = vdupq_n_u8(15);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const uint8x16_t both = vqtbl1q_u8(vld1q_u8(codes + 16 * v), turned);
      out[v] = vreinterpretq_s32_s8(vqtbl1q_s8(table.bytes, vandq_u8(both, mask)));
      out[v + 2] = vreinterpretq_s32_s8(vqtbl1q_s8(table.bytes, vshrq_n_u8(both, 4)));
    }
  }
  static Ints dot(Ints sum, Ints w, Ints x) {
    const int8x16_t a = vreinterpretq_s8_s32(w), b = vreinterpretq_s8_s32(x);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, a, b);
#else
    // Pairs of products are at most 32512.
    return vpadalq_s16(sum,
                       vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
#endif
  }

  static Ints subtract(Ints a, Ints b) { return vsubq_s32(a, b); }
  static Ints multiply(Ints a, Ints b) { return vmulq_s32(a, b); }
  static Ints to_int(Floats x) { return vcvtq_s32_f32(x); }
  static Floats to_float(Ints x) { return vcvtq_f32_s32(x); }
  static Floats load(const float* from) { return vld1q_f32(from); }
  static void store(Floats x, float* to) { vst1q_f32(to, x); }
  static Floats set(float x) { return vdupq_n_f32(x); }
  static Floats zero() { return vdupq_n_f32(0); }
  static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats subtract(Floats a, Floats b) { return vsubq_f32(a, b); }
  static Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
};

}  // namespace
}  // namespace temper::kernels
