#include "temper/ops/divergence.h"

#include <ATen/ATen.h>

#include <optional>

#include "temper/ops/divergence_sums.h"
#include "temper/ops/head_blocks.h"
#include "temper/ops/product.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using kernels::DivergencePart;
using kernels::kVocabularyBlock;
using kernels::MixturePart;
using kernels::row_kernels;
using kernels::SoftmaxPart;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct What {
  DivergenceSpec spec;
  std::optional<TeacherHead> teacher;  // none: its numbers are in `top`
  std::optional<TopTokens> top;        // logits at the temperature
  std::vector<int64_t> target;
  Weight weight;  // the student's, without its values
  bool dense() const { return !top; }
};

// One tile of logits: rows [row, row + rows) and the columns from `first` on. The student's are
// capped and at temperature 1, the teacher's at the temperature.
struct Tile {
  int64_t row, rows, first, columns;
  at::Tensor student, teacher;  // teacher undefined unless it was asked for
  Weight weight;                // of the student's columns
};

// Calls body(tile) for each tile, blocks of columns ascending.
template <class T, class Body>
void each_tile(const What& w, const at::Tensor& hidden, const at::Tensor& values, bool with_teacher,
               Body body) {
  const int64_t m = hidden.size(0);
  HeadSpec own = w.spec.student;
  own.temperature = 1;
  Weight weight = w.weight;
  weight.values = values;
  each_block(weight, m, [&](int64_t first, const Weight& part) {
    const int64_t columns = part.out();
    HeadSpec theirs;
    Weight their_part;
    if (with_teacher) {
      theirs = w.teacher->spec;
      theirs.temperature = w.spec.temperature;
      their_part = block_of(w.teacher->weight, first, m);
    }
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t rows = std::min(kRows, m - row);
      Tile tile{row, rows, first, columns, {}, {}, part};
      tile.student = at::empty({rows, columns}, hidden.options());
      chunk_logits<T>(own, hidden.narrow(0, row, rows), part, tile.student);
      if (with_teacher) {
        tile.teacher = at::empty({rows, columns}, hidden.options());
        chunk_logits<T>(theirs, w.teacher->hidden.narrow(0, row, rows), their_part, tile.teacher);
      }
      body(tile);
    }
  });
}

at::Tensor tempered(const at::Tensor& x, double temperature) {
  return temperature == 1 ? x : x / temperature;
}

// Calls body(row of the tile, column of the tile, index into [M, k]) for the tile's top tokens.
template <class Body>
void each_top(const TopTokens& top, const Tile& tile, Body body) {
  const int64_t k = top.id.size(1);
  const int64_t* id = top.id.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < tile.rows; ++r)
    for (int64_t at = (tile.row + r) * k; at < (tile.row + r + 1) * k; ++at)
      if (id[at] >= tile.first && id[at] < tile.first + tile.columns)
        body(r, id[at] - tile.first, at);
}

struct DivergenceFunction : Function<DivergenceFunction> {
  // Gives value, logp.
  static variable_list forward(AutogradContext* ctx, const What& what, const at::Tensor& hidden,
                               const at::Tensor& weight) {
    const int64_t m = hidden.size(0);
    const auto per_row = [&] { return at::empty({m}, hidden.options()); };
    RowSums sums{per_row(), per_row(), per_row(), per_row()};
    at::Tensor logp = per_row(), lse = per_row(), chosen;
    if (what.top) chosen = at::empty_like(what.top->logit);
    dispatch(hidden, [&](auto zero) {
      using T = decltype(zero);
      sweep<T>(what, hidden, weight, sums, logp, lse, chosen);
    });
    ctx->save_for_backward({hidden, weight, lse, sums.lse_student, sums.lse_teacher, sums.value,
                            sums.mixture, chosen});
    ctx->set_materialize_grads(false);
    keep(ctx, what);
    return {sums.value, logp};
  }

  template <class T>
  static void sweep(const What& w, const at::Tensor& hidden, const at::Tensor& weight,
                    RowSums& sums, at::Tensor& logp, at::Tensor& lse, at::Tensor& chosen) {
    const int64_t m = hidden.size(0), vocabulary = weight.size(0), blocks = blocks_of(vocabulary);
    const int64_t width = w.dense() ? vocabulary : w.top->id.size(1);
    std::vector<SoftmaxPart<T>> own(static_cast<size_t>(m * blocks));
    std::vector<DivergencePart<T>> parts(static_cast<size_t>(m * blocks_of(width)));
    T* of_target = logp.mutable_data_ptr<T>();
    each_tile<T>(w, hidden, weight, w.dense(), [&](const Tile& t) {
      const int64_t block = t.first / kVocabularyBlock;
      const T* x = values<T>(t.student);
      row_kernels<T>().softmax_parts(t.rows, t.columns, x, t.columns,
                                     own.data() + t.row * blocks + block, blocks);
      for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t column = w.target[static_cast<size_t>(t.row + r)] - t.first;
        if (column >= 0 && column < t.columns) of_target[t.row + r] = x[r * t.columns + column];
      }
      if (w.dense()) {
        const at::Tensor student = tempered(t.student, w.spec.temperature);
        divergence_kernels<T>().parts(logit_rows<T>(student, t.teacher, {}, t.row),
                                      parts.data() + t.row * blocks + block, blocks);
      } else {
        T* to = chosen.mutable_data_ptr<T>();
        each_top(*w.top, t, [&](int64_t r, int64_t column, int64_t at) {
          to[at] = x[r * t.columns + column] / static_cast<T>(w.spec.temperature);
        });
      }
    });
    row_kernels<T>().join_parts(m, blocks, own.data(), lse.mutable_data_ptr<T>(), nullptr);
    for (int64_t i = 0; i < m; ++i) of_target[i] -= values<T>(lse)[i];
    if (!w.dense())
      divergence_kernels<T>().parts(logit_rows<T>(chosen, w.top->logit, {}, 0), parts.data(),
                                    blocks_of(width));
    join(parts, m, w.spec.kind, sums);
    if (w.spec.kind == DivergenceKind::kJsd) mix<T>(w, hidden, weight, chosen, sums);
  }

  // The mixture's logarithm needs both sums first: a second sweep.
  template <class T>
  static void mix(const What& w, const at::Tensor& hidden, const at::Tensor& weight,
                  const at::Tensor& chosen, RowSums& sums) {
    const int64_t m = hidden.size(0);
    const int64_t blocks = blocks_of(w.dense() ? weight.size(0) : w.top->id.size(1));
    const T b = static_cast<T>(w.spec.jsd_beta);
    std::vector<MixturePart<T>> parts(static_cast<size_t>(m * blocks));
    const auto add = [&](const at::Tensor& student, const at::Tensor& teacher, int64_t row,
                         int64_t block) {
      divergence_kernels<T>().mixture_parts(logit_rows<T>(student, teacher, sums, row), b,
                                            parts.data() + row * blocks + block, blocks);
    };
    if (w.dense())
      each_tile<T>(w, hidden, weight, true, [&](const Tile& t) {
        add(tempered(t.student, w.spec.temperature), t.teacher, t.row, t.first / kVocabularyBlock);
      });
    else
      add(chosen, w.top->logit, 0, 0);
    join(parts, m, w.spec.jsd_beta, sums);
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1];
    const What& what = kept<What>(ctx);
    at::Tensor dhidden, dweight;
    if (ctx->needs_input_grad(0)) dhidden = at::zeros_like(hidden);
    if (ctx->needs_input_grad(1)) dweight = at::zeros_like(weight);
    dispatch(hidden, [&](auto zero) {
      using T = decltype(zero);
      gradient<T>(what, saved, douts, dhidden, dweight);
    });
    return {at::Tensor(), dhidden, dweight};
  }

  // out = g times the divergence's gradient with respect to the student's logits, which are divided
  // by the temperature after their cap.
  template <class T>
  static at::Tensor slope(const What& w, const at::Tensor& student, const at::Tensor& teacher,
                          const RowSums& sums, const at::Tensor& g, int64_t row) {
    at::Tensor out = at::empty_like(student);
    const bool jsd = w.spec.kind == DivergenceKind::kJsd;
    divergence_kernels<T>().gradient(logit_rows<T>(student, teacher, sums, row), w.spec.kind,
                                     static_cast<T>(w.spec.jsd_beta),
                                     values<T>(jsd ? sums.mixture : sums.value) + row,
                                     values<T>(g) + row, out.mutable_data_ptr<T>());
    return w.spec.temperature == 1 ? out : out.div_(w.spec.temperature);
  }

  template <class T>
  static void gradient(const What& w, const variable_list& saved, const variable_list& douts,
                       at::Tensor& dhidden, at::Tensor& dweight) {
    const at::Tensor &hidden = saved[0], &weight = saved[1], &lse = saved[2], &chosen = saved[7];
    const RowSums sums{saved[3], saved[4], saved[5], saved[6]};
    const at::Tensor g = douts[0].defined() ? douts[0].contiguous() : at::Tensor();
    const at::Tensor y = douts[1].defined() ? douts[1].contiguous() : at::Tensor();
    at::Tensor top;
    if (g.defined() && !w.dense()) top = slope<T>(w, chosen, w.top->logit, sums, g, 0);
    each_tile<T>(w, hidden, weight, g.defined() && w.dense(), [&](const Tile& t) {
      at::Tensor dx;
      if (g.defined() && w.dense())
        dx = slope<T>(w, tempered(t.student, w.spec.temperature), t.teacher, sums, g, t.row);
      const double cap = w.spec.student.soft_cap;
      const at::Tensor bend = cap > 0 ? 1 - (t.student / cap).square() : at::Tensor();
      if (y.defined()) {
        at::Tensor x = t.student;
        row_kernels<T>().softmax_gradient(t.rows, t.columns, t.first, w.target.data() + t.row,
                                          values<T>(lse) + t.row, nullptr, values<T>(y) + t.row,
                                          nullptr, x.mutable_data_ptr<T>(), t.columns);
        dx = dx.defined() ? dx.add_(x) : x;
      }
      if (!dx.defined()) dx = at::zeros_like(t.student);
      if (top.defined()) {
        T* to = dx.mutable_data_ptr<T>();
        each_top(*w.top, t, [&](int64_t r, int64_t column, int64_t at) {
          to[r * t.columns + column] += values<T>(top)[at];
        });
      }
      if (bend.defined()) dx.mul_(bend);
      if (dhidden.defined()) {
        at::Tensor to = dhidden.narrow(0, t.row, t.rows);
        multiply_transposed(dx, t.weight, to, true);
      }
      if (dweight.defined()) {
        at::Tensor to = dweight.narrow(0, t.first, t.columns);
        weight_gradient(t.weight, dx, hidden.narrow(0, t.row, t.rows), to, true);
      }
    });
  }
};

Divergence apply(What what, const at::Tensor& hidden, const Weight& weight) {
  const DivergenceSpec& spec = what.spec;
  check(hidden.dim() == 2 && hidden.size(0) == static_cast<int64_t>(what.target.size()) &&
            hidden.size(1) == weight.in(),
        "divergence: hidden ", hidden.sizes(), ", weight ", weight.values.sizes(), ", ",
        what.target.size(), " targets");
  check(spec.temperature > 0, "divergence: temperature must be above 0");
  check(spec.kind != DivergenceKind::kJsd || (spec.jsd_beta > 0 && spec.jsd_beta < 1),
        "divergence: jsd_beta must be in (0, 1)");
  for (const int64_t t : what.target)
    check<DataError>(t >= 0 && t < weight.out(), "token id ", t,
                     " is outside the model's vocabulary of ", weight.out());
  what.weight = weight;
  what.weight.values.reset();
  what.weight.panels.reset();
  const variable_list out =
      DivergenceFunction::apply(std::move(what), hidden.contiguous(), weight.values);
  return {out[0], out[1]};
}

}  // namespace

Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TeacherHead& teacher, const std::vector<int64_t>& target) {
  check(teacher.weight.out() == weight.out() && teacher.hidden.size(0) == hidden.size(0) &&
            teacher.hidden.size(1) == teacher.weight.in(),
        "divergence: teacher's hidden ", teacher.hidden.sizes(), ", weight ",
        teacher.weight.values.sizes(), ", student's hidden ", hidden.sizes(), ", weight ",
        weight.values.sizes());
  What what{
      spec, TeacherHead{teacher.spec, teacher.hidden.contiguous(), teacher.weight}, {}, target, {}};
  if (spec.top_k > 0 && spec.top_k < weight.out())
    what.top = likeliest_tokens(*what.teacher, spec.temperature, spec.top_k);
  return apply(what, hidden, weight);
}

Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TopTokens& teacher, const std::vector<int64_t>& target) {
  const at::Tensor logit = teacher.logit.to(hidden.scalar_type()).contiguous();
  check(teacher.id.sizes() == logit.sizes() && logit.dim() == 2 &&
            logit.size(0) == hidden.size(0) && logit.size(1) > 0,
        "divergence: the teacher's ids ", teacher.id.sizes(), ", logits ", logit.sizes(),
        ", hidden ", hidden.sizes());
  check<DataError>(teacher.id.numel() == 0 || (teacher.id.min().item<int64_t>() >= 0 &&
                                               teacher.id.max().item<int64_t>() < weight.out()),
                   "the teacher's token ids are outside the model's vocabulary of ", weight.out());
  return apply(
      {spec, {}, TopTokens{teacher.id.contiguous(), tempered(logit, spec.temperature)}, target, {}},
      hidden, weight);
}

}  // namespace temper::ops
