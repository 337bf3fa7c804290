// Ranks of a run, launched as torchrun launches them (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
// and their communication. The only place with c10d.
//
// Every sum is taken element by element in the order of the ranks, so that it depends neither on
// where an element stands in its tensor nor on what else is summed: a run on a given mesh is
// repeatable bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/ops/ranks.h"

namespace temper::dist {

class Group : public ops::Ranks {
 public:
  // All ranks, from the environment; one rank where it says nothing. Throws as Mesh's join().
  static std::shared_ptr<Group> from_environment(const std::function<bool()>& stop = {});
  // A group of the same ranks for a second thread of each: its collectives do not mix with those of
  // this group. All ranks make it, under the same name.
  virtual std::shared_ptr<Group> clone_for_thread(const std::string& name);

  // Whether this process writes the run's files: the first of all ranks, not of the group.
  virtual bool is_writer() const { return rank() == 0; }
  // Where the ranks of several groups do the same work (tensor parallelism), one group leads: the
  // others take over results of its ranks that they could find differently, such as a reward.
  virtual bool has_twins() const { return false; }
  virtual bool leads() const { return true; }
  // The text of the leading group's rank, on all ranks that do the same as this one.
  virtual std::string agreed(const std::string& text) { return text; }
  // Whether the group's ranks must make as many passes as each other, in the same order, as they
  // gather each other's weights in them.
  virtual bool in_step() const { return false; }

  // Collectives: every rank of the group calls them in the same order. Tensors are contiguous. A
  // rank that is gone makes them throw RunError. Except for all_reduce_sum and barrier, the base
  // class has them in terms of these.
  virtual void barrier() = 0;
  using Ranks::all_reduce_sum;
  void all_gather(const at::Tensor& part, at::Tensor& whole) override;
  void in_turn(at::Tensor& tensor, const std::function<void()>& add) override;
  // part [n] becomes the sum over ranks of the `part`-th n elements of whole [size * n].
  virtual void reduce_scatter_sum(const at::Tensor& whole, at::Tensor& part);
  // taken [size * n] becomes, by rank, what each rank has for this one in its `given` [size * n].
  virtual void exchange(const at::Tensor& given, at::Tensor& taken);
  // The tensor of the rank `root` on all.
  virtual void broadcast(at::Tensor& tensor, int root);

  // Sends a tensor from this rank to another, which calls receive().
  virtual void send(const at::Tensor& tensor, int to);
  virtual void receive(at::Tensor& tensor, int from);

  void all_reduce_sum(std::vector<double>& values);
  // Every rank's bytes, by rank.
  std::vector<std::string> all_gather(const std::string& bytes);
  double all_reduce_max(double value);
};

// A group of this process alone.
std::shared_ptr<Group> alone();

}  // namespace temper::dist
