#include "temper/ops/logits/divergence.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/logits/head_blocks.h"

namespace temper::ops {
namespace {

struct What {
  DivergenceSpec spec;
  std::optional<TeacherHead> teacher;  // none: its numbers are in `top`
  std::optional<TopTokens> top;        // logits at the temperature
  at::Tensor hidden, target;           // [M, H], [M]
  Weight weight;                       // the student's
  bool dense() const { return !top; }
};

// One tile of logits: rows [row, row + rows) and the columns from `first` on. The student's are
// capped and at temperature 1, the teacher's at the temperature.
struct Tile {
  int64_t row, rows, first, columns;
  at::Tensor student, teacher;  // teacher undefined unless it was asked for
  Weight weight;                // the student's weight for these columns

  at::Tensor own(const at::Tensor& x) const {
    return x.defined() ? x.narrow(0, row, rows) : at::Tensor();
  }
  DivergenceSums own(const DivergenceSums& s) const {
    return {own(s.lse_student), own(s.lse_teacher), own(s.value), own(s.mixture)};
  }
  at::Tensor own_parts(const at::Tensor& parts) const {
    return parts_of(parts, row, rows, first, columns);
  }
};

// Calls body(tile) for each tile, blocks of columns ascending.
template <class Body>
void each_tile(const What& w, bool with_teacher, Body body) {
  const int64_t m = w.hidden.size(0);
  HeadSpec own = w.spec.student;
  own.temperature = 1;
  each_block(w.weight, m, [&](int64_t first, const Weight& part) {
    HeadSpec theirs;
    Weight their_part;
    if (with_teacher) {
      theirs = w.teacher->spec;
      theirs.temperature = w.spec.temperature;
      their_part = block_of(w.teacher->weight, first, m);
    }
    each_rows(backend_of(w.hidden), m, [&](int64_t row, int64_t rows) {
      Tile tile{row, rows, first, part.out(), {}, {}, part};
      tile.student = tile_logits(own, w.hidden.narrow(0, row, rows), part);
      if (with_teacher)
        tile.teacher = tile_logits(theirs, w.teacher->hidden.narrow(0, row, rows), their_part);
      body(tile);
    });
  });
}

at::Tensor tempered(const at::Tensor& x, double temperature) {
  return temperature == 1 ? x : x / temperature;
}

// Values of each row that the backward pass needs besides its inputs.
struct Swept {
  DivergenceSums sums;
  at::Tensor logp, log_sum_exp;  // the student's at temperature 1, [M]
  at::Tensor chosen;             // the student's logits of the top tokens at the temperature
};

Swept sweep(const What& w) {
  const Backend& backend = backend_of(w.hidden);
  const int64_t m = w.hidden.size(0), vocabulary = w.weight.out();
  const auto parts = [&](int64_t columns, int64_t numbers) {
    return at::empty({m, blocks_of(columns), numbers}, w.hidden.options());
  };
  const at::Tensor own = parts(vocabulary, 3), target = w.target.unsqueeze(1);
  const at::Tensor both = parts(w.dense() ? vocabulary : w.top->id.size(1), 6);
  Swept out;
  at::Tensor logit = at::zeros({m, 1}, w.hidden.options());
  if (!w.dense()) out.chosen = at::empty_like(w.top->logit);
  each_tile(w, w.dense(), [&](const Tile& t) {
    backend.softmax_parts(t.student, t.own_parts(own));
    backend.take_entries(t.student, t.first, t.own(target), t.own(logit));
    if (w.dense())
      backend.divergence_parts(tempered(t.student, w.spec.temperature), t.teacher,
                               t.own_parts(both));
    else
      backend.take_entries(t.student, t.first, t.own(w.top->id), t.own(out.chosen));
  });
  out.log_sum_exp = backend.join_softmax_parts(own).log_sum_exp;
  out.logp = logit.view({m}).sub_(out.log_sum_exp);
  if (!w.dense()) {
    if (w.spec.temperature != 1) out.chosen.div_(w.spec.temperature);
    backend.divergence_parts(out.chosen, w.top->logit, both);
  }
  out.sums = backend.join_divergence_parts(both, w.spec.kind);
  if (w.spec.kind != DivergenceKind::kJsd) return out;

  // The mixture's logarithm needs both sums first: a second sweep.
  const at::Tensor mixed = parts(w.dense() ? vocabulary : w.top->id.size(1), 2);
  if (w.dense())
    each_tile(w, true, [&](const Tile& t) {
      backend.mixture_parts(tempered(t.student, w.spec.temperature), t.teacher, t.own(out.sums),
                            w.spec.jsd_beta, t.own_parts(mixed));
    });
  else
    backend.mixture_parts(out.chosen, w.top->logit, out.sums, w.spec.jsd_beta, mixed);
  backend.join_mixture_parts(mixed, w.spec.jsd_beta, out.sums);
  return out;
}

// g times the divergence's gradient with respect to the student's logits, which are divided by the
// temperature after their cap.
at::Tensor slope(const What& w, const at::Tensor& student, const at::Tensor& teacher,
                 const DivergenceSums& sums, const at::Tensor& g) {
  at::Tensor out = backend_of(student).divergence_gradient(w.spec, student, teacher, sums, g);
  return w.spec.temperature == 1 ? out : out.div_(w.spec.temperature);
}

// The gradient of a tile's products, before scale and cap. `top` is that of the top tokens' logits,
// where the teacher has but those.
at::Tensor tile_gradient(const What& w, const Tile& t, const Swept& s, const Gradients& d,
                         const at::Tensor& top) {
  const at::Tensor &dvalue = d[0], &dlogp = d[1];
  const Backend& backend = backend_of(t.student);
  at::Tensor dx;
  if (dvalue.defined() && w.dense())
    dx = slope(w, tempered(t.student, w.spec.temperature), t.teacher, t.own(s.sums), t.own(dvalue));
  const double cap = w.spec.student.soft_cap;
  const at::Tensor bend = cap > 0 ? 1 - (t.student / cap).square() : at::Tensor();
  if (dlogp.defined()) {
    at::Tensor x = t.student;
    backend.softmax_gradient(x, t.first, t.own(w.target), {t.own(s.log_sum_exp), {}}, t.own(dlogp),
                             {});
    dx = dx.defined() ? dx.add_(x) : x;
  }
  if (!dx.defined()) dx = at::zeros_like(t.student);
  if (top.defined()) backend.add_to_entries(dx, t.first, t.own(w.top->id), t.own(top));
  if (bend.defined()) dx.mul_(bend);
  return w.spec.student.scale == 1 ? dx : dx.mul_(w.spec.student.scale);
}

// Of hidden, the weight's values and its trained rows, from those of the value and of logp.
Tensors divergence_gradients(const What& w, const Swept& s, const Gradients& d) {
  at::Tensor dhidden, dweight, drows, top;
  if (d.wanted(0)) dhidden = at::zeros_like(w.hidden);
  if (d.wanted(1)) dweight = at::zeros_like(w.weight.values);
  if (d.wanted(2)) drows = at::zeros_like(w.weight.trained_values());
  if (d[0].defined() && !w.dense()) top = slope(w, s.chosen, w.top->logit, s.sums, d[0]);
  each_tile(w, d[0].defined() && w.dense(), [&](const Tile& t) {
    const at::Tensor dx = tile_gradient(w, t, s, d, top);
    if (dhidden.defined()) {
      at::Tensor to = dhidden.narrow(0, t.row, t.rows);
      multiply_transposed(dx, t.weight, to, true);
    }
    if (dweight.defined()) {
      at::Tensor to = dweight.narrow(0, t.first, t.columns);
      weight_gradient(t.weight, dx, w.hidden.narrow(0, t.row, t.rows), to, true);
    }
    trained_gradient(w.weight, t.first, dx, w.hidden.narrow(0, t.row, t.rows), drows);
  });
  return {dhidden, dweight, drows};
}

Divergence apply(What what, const std::vector<int64_t>& target, const at::Tensor& hidden,
                 const Weight& weight) {
  const DivergenceSpec& spec = what.spec;
  check(hidden.dim() == 2 && hidden.size(0) == static_cast<int64_t>(target.size()) &&
            hidden.size(1) == weight.in(),
        "divergence: hidden ", hidden.sizes(), ", weight ", weight.out(), " by ", weight.in(), ", ",
        target.size(), " targets");
  check(spec.temperature > 0, "divergence: temperature must be above 0");
  check(spec.kind != DivergenceKind::kJsd || (spec.jsd_beta > 0 && spec.jsd_beta < 1),
        "divergence: jsd_beta must be in (0, 1)");
  for (const int64_t t : target)
    check<DataError>(t >= 0 && t < weight.out(), "token id ", t,
                     " is outside the model's vocabulary of ", weight.out());
  what.hidden = hidden.contiguous();
  what.target = indices(target, hidden);
  what.weight = weight;
  what.weight.panels.reset();
  Recording call({what.hidden, weight.values, weight.trained_values()});
  Swept s = sweep(what);
  call.reads({what.hidden, weight.values, s.log_sum_exp, s.sums.lse_student, s.sums.lse_teacher,
              s.sums.value, s.sums.mixture, s.chosen});
  const Tensors outputs{s.sums.value, std::exchange(s.logp, {})};
  const Tensors out = call.outputs(outputs, [what = std::move(what), s](const Gradients& d) {
    return divergence_gradients(what, s, d);
  });
  return {out[0], out[1]};
}

}  // namespace

Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TeacherHead& teacher, const std::vector<int64_t>& target) {
  check(teacher.weight.out() == weight.out() && teacher.hidden.size(0) == hidden.size(0) &&
            teacher.hidden.size(1) == teacher.weight.in(),
        "divergence: teacher's hidden ", teacher.hidden.sizes(), ", weight ", teacher.weight.out(),
        " by ", teacher.weight.in(), ", student's hidden ", hidden.sizes(), ", weight ",
        weight.out(), " by ", weight.in());
  What what{
      spec, TeacherHead{teacher.spec, teacher.hidden.contiguous(), teacher.weight}, {}, {}, {}, {}};
  if (spec.top_k > 0 && spec.top_k < weight.out())
    what.top = likeliest_tokens(*what.teacher, spec.temperature, spec.top_k);
  return apply(what, target, hidden, weight);
}

Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TopTokens& teacher, const std::vector<int64_t>& target) {
  const at::Tensor logit = teacher.logit.to(hidden.options()).contiguous(),
                   id = teacher.id.to(hidden.device()).contiguous();
  check(teacher.id.sizes() == logit.sizes() && logit.dim() == 2 &&
            logit.size(0) == hidden.size(0) && logit.size(1) > 0,
        "divergence: the teacher's ids ", teacher.id.sizes(), ", logits ", logit.sizes(),
        ", hidden ", hidden.sizes());
  check<DataError>(teacher.id.numel() == 0 || (teacher.id.min().item<int64_t>() >= 0 &&
                                               teacher.id.max().item<int64_t>() < weight.out()),
                   "the teacher's token ids are outside the model's vocabulary of ", weight.out());
  return apply({spec, {}, TopTokens{id, tempered(logit, spec.temperature)}, {}, {}, {}}, target,
               hidden, weight);
}

}  // namespace temper::ops
