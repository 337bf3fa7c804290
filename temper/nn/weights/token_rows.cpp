#include "temper/nn/weights/token_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/base/error.h"
#include "temper/ops/backend.h"

namespace temper::nn {

TokenRows::TokenRows(Module& owner, Parameter& table, std::vector<int64_t> token_ids)
    : Module(owner, "token_adapter"),
      ids(std::move(token_ids)),
      owner_(owner),
      table_(table),
      weight(*this, "trainable_tokens_delta", {std::ssize(ids), table.shape()[1]}, table.init()) {
  check(!table.placement(), "rows of a table that ranks divide");
  weight.set_device(table.device());
  if (table.has_value())
    weight.set_value(table.value().detach().index_select(0, ops::indices(ids, table.value())));
  weight.set_trainable(true);
  weight.set_on_update([this] { write(); });
  table.set_trained_rows(&weight, ids);
}

TokenRows::~TokenRows() {
  table_.set_trained_rows(nullptr);
  owner_.forget(*this);
}

void TokenRows::write() {
  if (!table_.has_value() || !weight.has_value()) return;
  const at::NoGradGuard no_grad;
  at::Tensor to = table_.value().detach();
  to.index_copy_(0, ops::indices(ids, to), weight.value().detach().to(to.scalar_type()));
  table_.mark_updated();
}

}  // namespace temper::nn
