// Knowledge distillation (Hinton et al., arXiv 1503.02531, section 2): the student's distribution
// of the next token p learns the teacher's q, both softened by the temperature T. Of supervised
// tokens,
//
//   forward_kl: KL(q || p);   reverse_kl: KL(p || q) (Gu et al., MiniLLM, arXiv 2306.08543);
//   jsd: b KL(q || m) + (1 - b) KL(p || m), m = b q + (1 - b) p (Agarwal et al., arXiv 2306.13649,
//   section 2).
//
// Gradients of softened distributions scale as 1 / T², so each is multiplied by T² (Hinton et al.,
// section 2).
#include "temper/distill/logit.h"

#include <ATen/ATen.h>

#include "temper/distill/cross_tokenizer.h"

namespace temper::distill {

Logit::Logit(const DistillSection& section)
    : spec_{.kind = section.divergence,
            .jsd_beta = section.jsd_beta,
            .temperature = section.temperature,
            .top_k = section.top_k} {}

double Logit::count(const train::ForwardPass& pass) const {
  return static_cast<double>(pass.num_targets());
}

Strategy::Places Logit::places(const train::ForwardPass& pass) const { return {pass.row_M}; }

Strategy::Comparison Logit::compare(const Reading& reading) {
  const train::ForwardPass& pass = reading.pass;
  const ops::TeacherHead student = head_at_targets(reading.student, pass);
  ops::DivergenceSpec spec = spec_;
  spec.student = student.spec;
  const ops::Divergence d =
      reading.teacher
          ? ops::divergence(spec, student.hidden, student.weight,
                            head_at_targets(*reading.teacher, pass), pass.target_M)
          : ops::divergence(spec, student.hidden, student.weight, *reading.top, pass.target_M);
  return {d.value * (spec.temperature * spec.temperature), d.logp};
}

std::unique_ptr<Strategy> make_divergence(const StrategyContext& context) {
  if (context.config.distill.cross_tokenizer) return std::make_unique<CrossTokenizer>(context);
  return std::make_unique<Logit>(context.config.distill);
}

std::unique_ptr<Strategy> make_logit(const StrategyContext& context) {
  return make_divergence(context);
}

}  // namespace temper::distill
