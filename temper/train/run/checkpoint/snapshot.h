// Copies of tensors that training goes on to change, for a thread that writes them meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "temper/io/safetensors.h"
#include "temper/train/roles/roles.h"

namespace temper::train {

// Contents of the files NAME.safetensors and NAME.optimizer.safetensors of a trainable, by their
// names. They alias the weights and moments.
std::map<std::string, TensorMap> trained_files(const Trainables& trainables);

// The tensors with bytes of their own. One that is made when it is written (TensorView::make) is
// made here; of one that ranks share out (TensorView::own) this rank's runs are copied.
TensorMap copy_of(const TensorMap& tensors);

// Tensors that a thread writes as they are now while another one goes on to change them: copied
// when they are written, or before they change, whichever is first (copy on write). Held by a
// shared_ptr, which the views of it share.
class Snapshot : public std::enable_shared_from_this<Snapshot> {
 public:
  // What the writing thread is given in place of `live`: each tensor is copied when it is made, and
  // may be made once.
  TensorMap of(const TensorMap& live);
  // Called before `live` changes: copies what has not been made yet, on all threads of the caller.
  void complete();

 private:
  struct Item {
    TensorView view;  // of what changes, then of its copy
    enum class State { kLive, kCopied, kTaken } state = State::kLive;
  };
  TensorView take(Item& item);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Item>> items_;
};

// Bytes that copy_of() takes of these on this rank, at most.
int64_t copied_bytes(const TensorMap& tensors);

}  // namespace temper::train
