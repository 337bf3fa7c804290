// Copies of tensors that training goes on to change, for a thread that writes them meanwhile.
#pragma once

#include <cstdint>

#include "temper/io/safetensors.h"
#include "temper/train/roles.h"

namespace temper::train {

// Contents of the files NAME.safetensors and NAME.optimizer.safetensors of a trainable, by their
// names. They alias the weights and moments.
std::map<std::string, TensorMap> trained_files(const Trainables& trainables);

// The tensors with bytes of their own. One that is made when it is written (TensorView::make) is
// made here; of one that ranks share out (TensorView::own) this rank's runs are copied.
TensorMap copy_of(const TensorMap& tensors);

// Bytes that copy_of() takes of these on this rank, at most.
int64_t copied_bytes(const TensorMap& tensors);

}  // namespace temper::train
