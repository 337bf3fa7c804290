// Adafactor (Shazeer and Stern, arXiv 1804.04235) with a given learning rate: transformers'
// Adafactor with relative_step and scale_parameter off, as its Trainer sets them. The second moment
// of a matrix is kept as the means of its rows and of its columns; updates whose root mean square
// is above 1 are scaled down to it.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/exact_math.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

constexpr double kDecay = -0.8;       // the moments' decay is 1 - step ^ kDecay
constexpr double kSquareEps = 1e-30;  // added to squared gradients
constexpr double kClip = 1;           // largest root mean square of an update
constexpr int64_t kColumns = 256;     // columns of a matrix that one thread sums

struct Matrix {
  int64_t rows, columns;
  const float* grad;
  float scale;
  float at(int64_t r, int64_t c) const { return grad[r * columns + c] * scale; }
  double square(int64_t r, int64_t c) const {
    const double g = at(r, c);
    return g * g + kSquareEps;
  }
};

float moved(float moment, double decay, double now) {
  return static_cast<float>(decay * moment + (1 - decay) * now);
}

// The moments of rows and columns; sums in double, in ascending order.
void average(const Matrix& m, double decay, float* row, float* column) {
#pragma omp parallel for schedule(static) if (m.rows * m.columns > 32768)
  for (int64_t r = 0; r < m.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < m.columns; ++c) sum += m.square(r, c);
    row[r] = moved(row[r], decay, sum / static_cast<double>(m.columns));
  }
#pragma omp parallel for schedule(static) if (m.rows * m.columns > 32768)
  for (int64_t begin = 0; begin < m.columns; begin += kColumns) {
    const int64_t width = std::min(kColumns, m.columns - begin);
    double sums[kColumns] = {};
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < width; ++c) sums[c] += m.square(r, begin + c);
    for (int64_t c = 0; c < width; ++c)
      column[begin + c] = moved(column[begin + c], decay, sums[c] / static_cast<double>(m.rows));
  }
}

class Adafactor : public UpdateRule {
 public:
  std::vector<StateTensor> state(nn::Role, const std::vector<int64_t>& shape) const override {
    if (shape.size() != 2) return {{"second", shape}};
    return {{"second_row", {shape[0]}}, {"second_column", {shape[1]}}};
  }

  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    if (!updates_on_host(value)) return update_on_device(u, grad, value, state);
    const bool factored = state.size() == 2;
    const Matrix m{factored ? grad.size(0) : 1, factored ? grad.size(1) : grad.numel(),
                   grad.const_data_ptr<float>(), static_cast<float>(u.grad_scale)};
    const double decay = 1 - exact::pow(static_cast<double>(u.step), kDecay);
    std::vector<float> row(static_cast<size_t>(m.rows), 1.0f),
        column(static_cast<size_t>(m.columns));
    if (factored) {
      float* rows = state[0].mutable_data_ptr<float>();
      float* columns = state[1].mutable_data_ptr<float>();
      average(m, decay, rows, columns);
      double sum = 0;
      for (int64_t r = 0; r < m.rows; ++r) sum += rows[r];
      const double mean = sum / static_cast<double>(m.rows);
      for (size_t r = 0; r < row.size(); ++r)
        row[r] = static_cast<float>(1 / std::sqrt(rows[r] / mean));
      for (size_t c = 0; c < column.size(); ++c)
        column[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(columns[c])));
    } else {
      float* second = state[0].mutable_data_ptr<float>();
      for (int64_t c = 0; c < m.columns; ++c) {
        second[c] = moved(second[c], decay, m.square(0, c));
        column[static_cast<size_t>(c)] =
            static_cast<float>(1 / std::sqrt(static_cast<double>(second[c])));
      }
    }
    apply(u, m, row.data(), column.data(), static_cast<float*>(value.data_ptr()));
  }

 private:
  static void update_on_device(const Update& u, const at::Tensor& grad, const at::Tensor& value,
                               std::span<const at::Tensor> state) {
    const double decay = 1 - exact::pow(static_cast<double>(u.step), kDecay);
    const at::Tensor g = grad * u.grad_scale, square = g.square().add_(kSquareEps);
    const auto move = [&](const at::Tensor& moment, const at::Tensor& now) {
      moment.copy_((moment.to(at::kDouble) * decay).add_(now.to(at::kDouble), 1 - decay));
    };
    at::Tensor change;
    if (state.size() == 2) {
      move(state[0], square.mean(1, false, at::kDouble));
      move(state[1], square.mean(0, false, at::kDouble));
      const at::Tensor row = state[0].to(at::kDouble), column = state[1].to(at::kDouble);
      change = g * (row / row.mean()).rsqrt().to(at::kFloat).unsqueeze(1) *
               column.rsqrt().to(at::kFloat);
    } else {
      move(state[0], square);
      change = g * state[0].to(at::kDouble).rsqrt().to(at::kFloat);
    }
    const at::Tensor rms = change.square().mean(at::kDouble).sqrt();
    const at::Tensor rate = u.learning_rate / (rms / kClip).clamp_min(1.0);
    value.mul_(1 - u.learning_rate * u.weight_decay).sub_(change * rate.to(at::kFloat));
  }

  // value -= rate * grad * row * column, clipped.
  static void apply(const Update& u, const Matrix& m, const float* row, const float* column,
                    float* value) {
    std::vector<double> squares(static_cast<size_t>(m.rows));
#pragma omp parallel for schedule(static) if (m.rows * m.columns > 32768)
    for (int64_t r = 0; r < m.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < m.columns; ++c) {
        const double x = row[r] * column[c] * m.at(r, c);
        sum += x * x;
      }
      squares[static_cast<size_t>(r)] = sum;
    }
    double sum = 0;
    for (const double s : squares) sum += s;
    const double rms = std::sqrt(sum / static_cast<double>(m.rows * m.columns));
    const float rate = static_cast<float>(u.learning_rate / std::max(1.0, rms / kClip)),
                keep = static_cast<float>(1 - u.learning_rate * u.weight_decay);
#pragma omp parallel for schedule(static) if (m.rows * m.columns > 32768)
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) {
        float& p = value[r * m.columns + c];
        p = p * keep - rate * (row[r] * column[c] * m.at(r, c));
      }
  }
};

const Registered<OptimizerKind> kAdafactor(
    &optimizers, {"adafactor",
                  {.make = &make_rule<Adafactor>},
                  "second moments by row and column: hardly any state; no first moment",
                  "Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5"});

}  // namespace
}  // namespace temper::train
