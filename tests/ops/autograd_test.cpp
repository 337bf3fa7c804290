// What a differentiable function without a class of its own promises: lifetimes, and what is asked
// of it.
#include "temper/ops/autograd.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::ops;

namespace {

at::Tensor ones(bool trains = true) { return at::ones({3}, at::kDouble).requires_grad_(trains); }

// x * by; the result is captured as well. `alive` expires with what the backward pass keeps.
at::Tensor scaled(const at::Tensor& x, const at::Tensor& by, std::weak_ptr<int>* alive = nullptr) {
  Recording call({x, by});
  const at::Tensor y = x * by;
  call.reads({x, by, y});
  const auto token = std::make_shared<int>();
  if (alive) *alive = token;
  return call.output(y, [=](const Gradients& d) -> Tensors {
    CHECK(token);
    CHECK(y.equal(x * by));
    return {d.wanted(0) ? d[0] * by : at::Tensor(), d.wanted(1) ? d[0] * x : at::Tensor()};
  });
}

void backward(const at::Tensor& y) { torch::autograd::backward({y}, {at::ones_like(y)}); }

}  // namespace

TEST_CASE("what a call keeps goes with its graph, or when a backward pass has run") {
  std::weak_ptr<int> alive;
  {
    const at::Tensor y = scaled(ones(), ones(), &alive);
    CHECK(!alive.expired());
  }
  CHECK(alive.expired());

  const at::Tensor x = ones(), y = scaled(x, ones(), &alive);
  CHECK(!alive.expired());
  backward(y);
  CHECK(alive.expired());
  CHECK(x.grad().equal(at::ones_like(x)));

  const at::Tensor constant = scaled(ones(false), ones(false), &alive);
  CHECK(!constant.requires_grad());
  CHECK(alive.expired());
  {
    const at::NoGradGuard no_grad;
    CHECK(!scaled(ones(), ones(), &alive).requires_grad());
    CHECK(alive.expired());
  }
}

TEST_CASE("a graph that is kept is differentiated twice, one that was freed is an error") {
  const at::Tensor x = ones(), y = scaled(x, ones());
  torch::autograd::backward({y}, {at::ones_like(y)}, /*retain_graph=*/true);
  backward(y);
  CHECK(x.grad().equal(at::full_like(x, 2)));
  CHECK_THROWS_WITH(backward(y), doctest::Contains("backward through the graph a second time"));
}

TEST_CASE("tensors that are read must stay as they were") {
  const at::Tensor by = ones(false);
  {
    const at::Tensor y = scaled(ones(), by);
    by.mul_(2);
    CHECK_THROWS_WITH_AS(backward(y), doctest::Contains("has been written to"), RunError);
  }
  at::Tensor y = scaled(ones(), by);
  y.mul_(2);
  CHECK_THROWS_AS(backward(y), RunError);
}

TEST_CASE("only gradients that are asked for are wanted, and one tensor may be two inputs") {
  const at::Tensor x = ones();
  const auto wanted = [](const at::Tensor& a, const at::Tensor& b) {
    std::vector<bool> found;
    Recording call({a, b, at::Tensor()});
    backward(call.output(a + b, [&](const Gradients& d) -> Tensors {
      found = {d.wanted(0), d.wanted(1), d.wanted(2)};
      return {d[0], d[0]};
    }));
    return found;
  };
  CHECK(wanted(x, ones(false)) == std::vector<bool>{true, false, false});
  CHECK(wanted(ones(false), x) == std::vector<bool>{false, true, false});
  CHECK(wanted(x, x) == std::vector<bool>{true, true, false});
  CHECK(x.grad().equal(at::full_like(x, 4)));

  // torch::autograd::grad asks for one of two that train.
  const at::Tensor other = ones();
  Recording call({x, other});
  const at::Tensor y = call.output(x + other, [](const Gradients& d) -> Tensors {
    CHECK(!d.wanted(0));
    CHECK(d.wanted(1));
    return {at::Tensor(), d[0]};
  });
  CHECK(torch::autograd::grad({y}, {other}, {at::ones_like(y)})[0].equal(at::ones_like(y)));
}

TEST_CASE("a single output's gradient is always there, those of several as they come") {
  const at::Tensor x = ones();
  const auto dropped = [](const at::Tensor& from) {  // passes no gradient on
    Recording call({from});
    return call.output(from * 1, [](const Gradients&) { return Tensors(); });
  };
  {
    Recording call({x});
    backward(dropped(call.output(x * 1, [](const Gradients& d) -> Tensors {
      CHECK(d[0].equal(at::zeros({3}, at::kDouble)));
      return {d[0]};
    })));
  }
  Recording call({x});
  const Tensors ys = call.outputs({x * 1, x * 2, at::Tensor()}, [](const Gradients& d) -> Tensors {
    CHECK(d.all().size() == 3);
    CHECK(!d[0].defined());
    CHECK(d[1].is_contiguous());
    CHECK(!d[2].defined());
    return {2 * d[1]};
  });
  CHECK(!ys[2].defined());
  torch::autograd::backward({ys[1].sum()});
  CHECK(x.grad().equal(at::full_like(x, 2)));
}

TEST_CASE("an input may be an output, which is then another tensor of the same memory") {
  const at::Tensor x = ones();
  Recording call({x});
  const at::Tensor y = call.output(x, [](const Gradients& d) -> Tensors { return {3 * d[0]}; });
  CHECK(y.const_data_ptr() == x.const_data_ptr());
  CHECK(x.is_leaf());
  CHECK((y * 1).requires_grad());  // autograd goes on after the output
  backward(y);
  CHECK(x.grad().equal(at::full_like(x, 3)));
}
