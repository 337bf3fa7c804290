// The memory that attention takes of a device, against what the backend says of it.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "temper/models/device.h"
#include "temper/ops/aten/flash_attention.h"
#include "temper/ops/backend.h"
#include "tests/device/pretend_device.h"

namespace temper::ops {
namespace {

const at::Device kDevice(at::kPrivateUse1, 0);

// The most that forward and backward pass hold beside what they are given and give.
int64_t measured(const AttentionSpec& s, const Forest& forest, int64_t positions) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(kDevice);
  const int64_t n = forest.num_tokens();
  const RotaryTable rotary{at::ones({positions, s.head_dim / 2}, options),
                           at::zeros({positions, s.head_dim / 2}, options)};
  const at::Tensor q = at::ones({n, s.num_heads * s.head_dim}, options),
                   k = at::ones({n, s.num_kv_heads * s.head_dim}, options), v = k.clone(),
                   dout = q.clone();
  pretend::reset_peak();
  const int64_t before = pretend::counts().live_bytes;
  const AttentionResult result = aten_backend().attention(s, rotary, forest, 0, q, k, v);
  const AttentionGradients d =
      aten_backend().attention_backward(s, rotary, forest, 0, q, k, v, result, dout);
  CHECK(d.q.numel() == q.numel());
  return pretend::counts().peak_bytes - pretend::counts().live_bytes +
         (pretend::counts().live_bytes - before) - static_cast<int64_t>(result.out.nbytes());
}

}  // namespace

TEST_CASE("attention's scratch on a device is at most what the backend says, and near it") {
  Forest roots, group;
  for (int i = 0; i < 6; ++i) roots.add_root(std::vector<int32_t>(300));
  group.add_root(std::vector<int32_t>(400));
  for (int i = 0; i < 8; ++i) group.add_child(0, std::vector<int32_t>(150));
  AttentionSpec s;
  s.num_heads = 8;
  s.num_kv_heads = 2;
  s.head_dim = 16;
  s.scale = 0.25;
  for (const bool flash : {false, true}) {
    CAPTURE(flash);
    aten_impl::ask_for_flash_attention(at::kPrivateUse1, flash);
    s.arithmetic = flash ? Arithmetic::kFast : Arithmetic::kExact;
    REQUIRE(aten_impl::takes_flash_attention(s, kDevice) == flash);
    const auto check_forest = [&](const Forest& forest, int64_t longest) {
      const int64_t said = aten_backend().attention_scratch(s, {forest.num_tokens(), longest},
                                                            kDevice),
                    found = measured(s, forest, longest);
      CAPTURE(said);
      CAPTURE(found);
      CHECK(found <= said);
      CHECK(said <= 3 * found);
    };
    check_forest(roots, 300);
    check_forest(group, 550);
  }
  aten_impl::ask_for_flash_attention(at::kPrivateUse1, false);
}

TEST_CASE("a device that is full says so, and how much it has is known") {
  const auto before = models::memory_of(kDevice);
  REQUIRE(before);
  pretend::limit_memory(pretend::counts().live_bytes + 1000);
  CHECK(models::memory_of(kDevice)->free == 1000);
  CHECK_THROWS_AS(at::empty({1001}, at::TensorOptions(at::kByte).device(kDevice)),
                  c10::OutOfMemoryError);
  const at::Tensor fits = at::empty({900}, at::TensorOptions(at::kByte).device(kDevice));
  CHECK(models::memory_of(kDevice)->free == 100);
  pretend::limit_memory(before->all);
}

}  // namespace temper::ops
