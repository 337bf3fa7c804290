// The memory that tensors on the device `meta` would take: allocations, releases and their peak.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace temper::checks {

// The bytes that jemalloc allocates for a request, by its size classes: four to each doubling.
int64_t allocated_bytes(int64_t asked);

// Bytes that tensors ask for, and bytes that the allocator gives them.
struct TensorBytes {
  int64_t asked = 0, given = 0;
  void add(int64_t bytes) {
    asked += bytes;
    given += allocated_bytes(bytes);
  }
};

// The parts of a pass's memory at its peak.
struct PassPeak {
  TensorBytes activations;  // made by the forward pass
  TensorBytes scratch;      // made by the backward pass, which frees it
  TensorBytes logits;       // of the head and its gradient
  TensorBytes gradients;    // of trained weights; kept until the optimizer's step
  int64_t on_disk = 0;      // bytes of the inputs of blocks there (train.offload)
  int64_t given() const {
    return activations.given + scratch.given + logits.given + gradients.given;
  }
};

// Counts this thread's tensors on `meta` while it lives; it outlives them.
class CountedTensors {
 public:
  CountedTensors();
  ~CountedTensors();
  CountedTensors(const CountedTensors&) = delete;
  CountedTensors& operator=(const CountedTensors&) = delete;

  enum class Stage { kForward, kHead, kBackward };
  void enter(Stage stage) { stage_ = stage; }
  // The peak so far. Tensors of the head and the backward pass that were never freed are gradients,
  // which count times `gradient_share`; all others as if each number had `number_bytes` instead
  // of 4.
  PassPeak peak(double gradient_share, int64_t number_bytes) const;

  // For the allocator.
  static CountedTensors* current();
  int64_t take(size_t bytes);  // gives the piece's number
  void free(int64_t piece) { events_.push_back(~piece); }

 private:
  struct Piece {
    int64_t bytes;
    Stage stage;
  };
  std::vector<Piece> pieces_;
  std::vector<int64_t> events_;  // the piece that was taken, or ~ that which was freed
  Stage stage_ = Stage::kForward;
  CountedTensors* const before_;
};

}  // namespace temper::checks
