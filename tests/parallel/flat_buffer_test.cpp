// Tensors in one buffer, of which every rank keeps a part, and collectives on a thread of their
// own.
#include "temper/parallel/flat_buffer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/dist/mesh.h"
#include "temper/parallel/sharded_unit.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

std::vector<at::Tensor> sources() {
  return {at::linspace(0, 1, 7 * 300).reshape({7, 300}).contiguous(),
          at::linspace(-1, 0, 5).contiguous(),
          at::linspace(2, 3, 4 * 1000).reshape({4, 1000}).to(at::kBFloat16).contiguous(),
          at::linspace(5, 6, 1).contiguous()};
}

}  // namespace

TEST_CASE("what was laid out is whole again after a gathering, for every number of ranks") {
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    tiny::ThreadRanks(ranks, true).run([&](dist::Group& group) {
      const dist::Mesh mesh(group);
      parallel::FlatBuffer buffer(mesh.data_parallel);
      CHECK(buffer.empty());
      for (size_t i = 0; i < sources().size(); ++i) CHECK(buffer.add(sources()[i]) == i);
      buffer.lay_out();
      for (int again = 0; again < 2; ++again) {
        buffer.allocate();
        buffer.gather(*mesh.data_parallel);
        for (size_t i = 0; i < sources().size(); ++i) {
          CAPTURE(i);
          CHECK((buffer.value(i).scalar_type() == sources()[i].scalar_type()));
          CHECK(at::equal(buffer.value(i), sources()[i]));
          nn::Placement placement = buffer.placement(i);
          placement.whole_shape = sources()[i].sizes().vec();
          CHECK(at::equal(placement.whole(buffer.kept(i)), sources()[i]));
        }
        buffer.release();
      }
    });
  }
}

TEST_CASE("every element is kept by one rank") {
  tiny::ThreadRanks(3, true).run([](dist::Group& group) {
    const dist::Mesh mesh(group);
    parallel::FlatBuffer buffer(mesh.data_parallel);
    for (const at::Tensor& x : sources()) buffer.add(x);
    buffer.lay_out();
    for (size_t i = 0; i < sources().size(); ++i) {
      std::vector<double> kept{static_cast<double>(buffer.kept(i).numel())};
      mesh.data_parallel->all_reduce_sum(kept);
      CHECK(kept[0] == static_cast<double>(sources()[i].numel()));
      const std::vector<int64_t> bounds = buffer.placement(i).bounds;
      CHECK(std::is_sorted(bounds.begin(), bounds.end()));
      CHECK(bounds.back() == sources()[i].numel());
    }
  });
}

TEST_CASE("a channel runs what is asked for in order, and hands on what it throws") {
  tiny::ThreadRanks(2, true).run([](dist::Group& group) {
    const dist::Mesh mesh(group);
    std::vector<int> order;
    std::shared_future<void> failed, after;
    {
      parallel::Channel channel(mesh.data_parallel);
      for (int i = 0; i < 5; ++i)
        channel.run([&order, i](dist::Group& ranks) {
          ranks.barrier();
          order.push_back(i);
        });
      failed = channel.run([](dist::Group&) { throw RunError("lost"); });
      after = channel.run([&order](dist::Group&) { order.push_back(5); });
      CHECK_THROWS_WITH_AS(failed.get(), "lost", RunError);
    }  // it runs what is left before it ends
    CHECK_NOTHROW(after.get());
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
  });
}
