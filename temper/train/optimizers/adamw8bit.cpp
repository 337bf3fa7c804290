// AdamW whose moments are kept in 8 bits (Dettmers et al., arXiv 2110.02861), to the formulas of
// bitsandbytes' AdamW8bit on the CPU. A moment is an index into a table of 256 values, times the
// largest magnitude of its block of 256; between steps it is that, in a step it is float32. The
// table is dense around 0 ("dynamic map"): seven ranges, each ten times as wide as the one before
// and twice as fine. Parameters of fewer than 4096 elements keep float32 moments.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "temper/base/exact_math.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kLeast = 4096;  // elements from which moments have 8 bits
constexpr int kRanges = 7;

using Table = std::array<float, 256>;

// Boundary j of `items` even steps from 0.1 to 1, to the bits of torch.linspace.
float boundary(int j, int items) {
  const float low = 0.1f, step = (1 - low) / static_cast<float>(items);
  return 2 * j < items ? static_cast<float>(double{low} + double{step} * j)
                       : static_cast<float>(1 - double{step} * (items - j));
}

// bitsandbytes' create_dynamic_map: the middles between boundaries, in each range.
Table dynamic_map(bool with_sign) {
  std::vector<float> values{0, 1};
  for (int range = 0; range < kRanges; ++range) {
    const int items = 1 << (with_sign ? range : range + 1);
    const float unit = static_cast<float>(exact::pow(10.0, range - kRanges + 1));
    for (int j = 0; j < items; ++j) {
      const float middle = unit * ((boundary(j, items) + boundary(j + 1, items)) / 2);
      values.push_back(middle);
      if (with_sign) values.push_back(-middle);
    }
  }
  std::sort(values.begin(), values.end());
  Table table{};
  std::copy(values.begin(), values.end(), table.begin());
  return table;
}

// The index of the value nearest to x; of two as near, the lower one.
uint8_t nearest_index(const Table& table, float x) {
  const auto above = std::lower_bound(table.begin(), table.end(), x);
  if (above == table.begin()) return 0;
  const size_t index = static_cast<size_t>(above - table.begin());
  if (above == table.end()) return 255;
  return static_cast<uint8_t>(x - table[index - 1] <= table[index] - x ? index - 1 : index);
}

// A block of one moment, between its two forms.
struct Block {
  const Table& table;
  int64_t count;
  uint8_t* code;
  float* largest;

  void read(float* values) const {
    for (int64_t i = 0; i < count; ++i) values[i] = table[code[i]] * *largest;
  }
  void write(const float* values) const {
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
    *largest = most;
    const float scale = most > 0 ? 1 / most : 0;
    for (int64_t i = 0; i < count; ++i) code[i] = nearest_index(table, values[i] * scale);
  }
};

// The blocks of a moment on a device: code [blocks, kBlock], largest [blocks, 1].
struct DeviceBlocks {
  const Table& table;
  at::Tensor code, largest;

  at::Tensor on_device(const std::vector<float>& values) const {
    return at::tensor(values, at::kFloat).to(code.device());
  }
  at::Tensor read() const {
    const at::Tensor values = on_device({table.begin(), table.end()});
    return values.index_select(0, code.reshape({-1}).to(at::kInt)).view(code.sizes()) * largest;
  }
  void write(const at::Tensor& values) const {
    std::vector<float> middles;
    for (size_t i = 1; i < table.size(); ++i)
      middles.push_back(table[i - 1] + (table[i] - table[i - 1]) / 2);
    largest.copy_(values.abs().amax(1, true));
    const at::Tensor scaled = values / largest.masked_fill(largest == 0, 1);
    code.copy_(at::bucketize(scaled, on_device(middles), /*out_int32=*/true));
  }
};

class AdamW8bit : public UpdateRule {
 public:
  explicit AdamW8bit(const OptimizerSection& config)
      : betas_(config.betas), eps_(config.eps), adamw_(optimizers().find("adamw").make(config)) {}

  std::vector<StateTensor> state(nn::Role role, const std::vector<int64_t>& shape) const override {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    if (count < kLeast) return adamw_->state(role, shape);
    const std::vector<int64_t> blocks{(count + kBlock - 1) / kBlock};
    return {{"first", shape, at::kByte},
            {"second", shape, at::kByte},
            {"first_largest", blocks},
            {"second_largest", blocks}};
  }

  bool by_element(nn::Role role, const std::vector<int64_t>& shape) const override {
    return state(role, shape).size() == 2;  // a small parameter
  }

  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    if (state.size() == 2) return adamw_->update(u, grad, value, state);  // a small parameter
    if (!updates_on_host(value)) return update_on_device(u, grad, value, state);
    const int64_t count = grad.numel();
    const float* g = grad.const_data_ptr<float>();
    float* p = static_cast<float*>(value.data_ptr());
    uint8_t *first = state[0].mutable_data_ptr<uint8_t>(),
            *second = state[1].mutable_data_ptr<uint8_t>();
    float *first_largest = state[2].mutable_data_ptr<float>(),
          *second_largest = state[3].mutable_data_ptr<float>();
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin), b = begin / kBlock;
      update_block(u, g + begin, p + begin, {signed_, n, first + begin, first_largest + b},
                   {unsigned_, n, second + begin, second_largest + b});
    }
  }

 private:
  static constexpr int64_t kBlocksAtOnce = int64_t{1} << 15;

  void update_on_device(const Update& u, const at::Tensor& grad, const at::Tensor& value,
                        std::span<const at::Tensor> state) const {
    const int64_t whole = grad.numel() / kBlock;
    const auto blocks = [&](const at::Tensor& x, int64_t first, int64_t count) {
      return x.view({-1}).narrow(0, first * kBlock, count * kBlock).view({count, kBlock});
    };
    const auto update = [&](const at::Tensor& g, const at::Tensor& p, int64_t first, int64_t count,
                            const at::Tensor& m, const at::Tensor& v) {
      update_blocks(u, g, p, {signed_, m, state[2].narrow(0, first, count).unsqueeze(1)},
                    {unsigned_, v, state[3].narrow(0, first, count).unsqueeze(1)});
    };
    for (int64_t first = 0; first < whole; first += kBlocksAtOnce) {
      const int64_t count = std::min(kBlocksAtOnce, whole - first);
      update(blocks(grad, first, count), blocks(value, first, count), first, count,
             blocks(state[0], first, count), blocks(state[1], first, count));
    }
    const int64_t rest = grad.numel() - whole * kBlock;
    if (rest == 0) return;
    const auto tail = [&](const at::Tensor& x) {
      return x.view({-1}).narrow(0, whole * kBlock, rest).unsqueeze(0);
    };
    update(tail(grad), tail(value), whole, 1, tail(state[0]), tail(state[1]));
  }

  void update_blocks(const Update& u, const at::Tensor& grad, at::Tensor value,
                     const DeviceBlocks& first, const DeviceBlocks& second) const {
    const double t = static_cast<double>(u.step);
    const at::Tensor g = grad * u.grad_scale;
    const at::Tensor m = first.read().mul_(betas_[0]).add_(g, 1 - betas_[0]);
    const at::Tensor v = second.read().mul_(betas_[1]).addcmul_(g, g, 1 - betas_[1]);
    const at::Tensor root = v.sqrt().div_(std::sqrt(1 - exact::pow(betas_[1], t))).add_(eps_);
    value.mul_(1 - u.learning_rate * u.weight_decay)
        .addcdiv_(m, root, -u.learning_rate / (1 - exact::pow(betas_[0], t)));
    first.write(m);
    second.write(v);
  }

  void update_block(const Update& u, const float* grad, float* value, Block first,
                    Block second) const {
    float m[kBlock], v[kBlock];
    first.read(m);
    second.read(v);
    const double t = static_cast<double>(u.step);
    const float b1 = static_cast<float>(betas_[0]), c1 = static_cast<float>(1 - betas_[0]);
    const float b2 = static_cast<float>(betas_[1]), c2 = static_cast<float>(1 - betas_[1]);
    const float rate = static_cast<float>(u.learning_rate / (1 - exact::pow(betas_[0], t))),
                root = static_cast<float>(std::sqrt(1 - exact::pow(betas_[1], t)));
    const float keep = static_cast<float>(1 - u.learning_rate * u.weight_decay),
                eps = static_cast<float>(eps_), scale = static_cast<float>(u.grad_scale);
    for (int64_t i = 0; i < first.count; ++i) {
      const float g = grad[i] * scale;
      m[i] = m[i] * b1 + c1 * g;
      v[i] = v[i] * b2 + c2 * g * g;
      value[i] = value[i] * keep - rate * (m[i] / (std::sqrt(v[i]) / root + eps));
    }
    first.write(m);
    second.write(v);
  }

  std::array<double, 2> betas_;
  double eps_;
  std::unique_ptr<UpdateRule> adamw_;
  Table signed_ = dynamic_map(true), unsigned_ = dynamic_map(false);
};

const Registered<OptimizerKind> kAdamW8bit(
    &optimizers,
    {"adamw8bit",
     {.make = &make_rule<AdamW8bit>, .betas = {{0.9, 0.999}}, .eps = 1e-8},
     "AdamW whose moments are kept in 8 bits, in blocks of 256: a quarter of its state",
     "Dettmers et al., arXiv 2110.02861; the map of Dettmers, arXiv 1511.04561"});

}  // namespace
}  // namespace temper::train
