#include "temper/check/memory/compared_shape.h"

namespace temper::checks {

ComparedShape compared_shape(distill::Tap tap, int64_t pairs, bool maps, const ModelShape& student,
                             const ModelShape& teacher) {
  ComparedShape c;
  if (tap == distill::Tap::kNone) {  // ops/logits/divergence.cpp
    c.teacher_hidden = teacher.hidden;
    return c;
  }
  c.every_token = true;
  const auto add = [](std::vector<int64_t>& to, int64_t count, std::vector<int64_t> widths) {
    for (int64_t i = 0; i < count; ++i) to.insert(to.end(), widths.begin(), widths.end());
  };
  add(c.gradients, pairs, {student.hidden});
  if (tap == distill::Tap::kAttention) {
    // ops/layers/attention_maps.cpp: queries and keys are projected once more. The function's node
    // has the teacher's, which autograd does not free with the tensors that it saved. While a pair
    // is differentiated: both models' as scores read them, and the gradients of the student's.
    const int64_t q = student.heads * student.head_dim, k = student.kv_heads * student.head_dim,
                  teacher_q = teacher.heads * teacher.head_dim,
                  teacher_k = teacher.kv_heads * teacher.head_dim;
    add(c.student, pairs, {q, k});
    add(c.teacher, pairs, {teacher_q, teacher_k});
    add(c.scratch, 3, {q, k});
    add(c.scratch, 1, {teacher_q, teacher_k});
    c.map_heads = student.heads + teacher.heads;
  } else if (maps) {  // ops/logits/row_distance.cpp saves what the map made, and the teacher's
    add(c.student, pairs, {teacher.hidden, teacher.hidden});
    add(c.scratch, 1, {teacher.hidden});
  } else {  // it saves the teacher's, averaged to the student's width
    add(c.student, pairs, {student.hidden});
  }
  return c;
}

}  // namespace temper::checks
