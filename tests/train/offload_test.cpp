// What leaves memory for a disk comes back with the same bits (train.offload).
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <deque>

#include "temper/train/offload/disk_inputs.h"
#include "tests/train/tiny.h"

using namespace temper;
using namespace temper::train;

namespace {

at::Tensor drawn(const std::vector<int64_t>& shape, int64_t seed) {
  at::Tensor x = at::empty(shape, at::kFloat);
  auto* to = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    to[i] = static_cast<float>((i * 7919 + seed * 104729) % 65537) / 65537 - 0.4F;
  return x;
}

bool is_empty(const tiny::Folder& folder) { return std::filesystem::is_empty(folder.path); }

// A matrix that is updated in runs where its optimizer allows that, a small one and a vector.
struct Matrices : nn::Module {
  Matrices() {
    const std::vector<std::vector<int64_t>> shapes{{1030, 1024}, {64, 80}, {7}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      nn::Parameter& p = all.emplace_back(*this, str("p", i), shapes[i], nn::Init{});
      p.set_value(drawn(shapes[i], 1));
      p.set_trainable(true);
    }
  }
  void step(Optimizer& optimizer, int64_t number) {
    for (nn::Parameter& p : all) p.trained().mutable_grad() = drawn(p.shape(), 10 + number);
    optimizer.step(1e-2, 0.5);
  }
  std::deque<nn::Parameter> all;
};

std::map<std::string, std::string> bytes_of_state(Optimizer& optimizer) {
  std::map<std::string, std::string> out;
  for (const auto& [name, view] : optimizer.save()) {
    const TensorView made = view.make ? view.make() : view;
    out[name].assign(reinterpret_cast<const char*>(made.data), made.num_bytes);
  }
  return out;
}

}  // namespace

TEST_CASE("inputs of blocks come back from the disk, the last one first, pass after pass") {
  const tiny::Folder folder;
  DiskInputs inputs(folder.path.string(), "test");
  for (int64_t pass = 0; pass < 3; ++pass) {
    std::vector<at::Tensor> given;
    std::vector<std::unique_ptr<nn::BlockInputs::Kept>> kept;
    for (int64_t i = 0; i < 6; ++i) {
      // Of different sizes, one that is not contiguous, one too small to be written.
      at::Tensor x = drawn(i == 3 ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{300 + i, 128},
                           6 * pass + i);
      if (i == 2) x = x.t();
      if (i == 4) x = x.to(at::kBFloat16);
      given.push_back(x.clone());
      kept.push_back(inputs.keep(x));
    }
    for (size_t i = kept.size(); i-- > 0;) {
      const at::Tensor found = kept[i]->take();
      CHECK((found.scalar_type() == given[i].scalar_type()));
      CHECK(tiny::same_bits(found, given[i]));
      CHECK(tiny::same_bits(kept[i]->take(), given[i]));
      kept.pop_back();
    }
    if (pass == 1) inputs.clear();
  }
  CHECK(is_empty(folder));
}

TEST_CASE("every optimizer makes the same updates with its state on a disk, and goes on from it") {
  for (const auto& kind : optimizers().list()) {
    CAPTURE(kind.name);
    OptimizerSection section;
    section.name = kind.name;
    section.weight_decay = 0.1;
    if (kind.value.momentum) section.momentum = 0.9;
    const tiny::Folder folder;
    Matrices here, there, resumed;
    Optimizer in_memory(section, trainable_parameters(here)),
        on_disk(section, trainable_parameters(there)),
        later(section, trainable_parameters(resumed));
    on_disk.store_state_in(std::make_unique<DiskState>(folder.path.string(), "test"));
    later.store_state_in(std::make_unique<DiskState>(folder.path.string(), "test"));
    const auto check_same = [&](Matrices& a, Matrices& b) {
      for (size_t i = 0; i < a.all.size(); ++i)
        CHECK(tiny::same_bits(a.all[i].value(), b.all[i].value()));
    };
    for (int64_t n = 1; n <= 2; ++n) {
      here.step(in_memory, n);
      there.step(on_disk, n);
      check_same(here, there);
    }
    CHECK(bytes_of_state(in_memory) == bytes_of_state(on_disk));
    for (size_t i = 0; i < here.all.size(); ++i)
      resumed.all[i].set_value(here.all[i].value().detach().clone());
    later.load(in_memory.save(), 2, "test");
    here.step(in_memory, 3);
    resumed.step(later, 3);
    check_same(here, resumed);
    CHECK(is_empty(folder));
  }
}

TEST_CASE("wrong settings of train.offload are refused by their names") {
  const auto refusal = [](const std::vector<std::string>& arguments) -> std::string {
    RunConfig config;
    std::vector<std::string> all{"model.path=m", "output_dir=o", "data.train=r"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    try {
      read_run_config(config, all, "sft", {});
      config.resolve("sft");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(refusal({"train.offload=activations"}).find("expected train.recompute: blocks") !=
        std::string::npos);
  CHECK(refusal({"train.offload=all"}).find("train.offload") != std::string::npos);
  CHECK(refusal({"train.offload=disk"}).find("train.offload") != std::string::npos);
  CHECK(refusal({"train.offload_dir=/tmp"}).find("train.offload_dir") != std::string::npos);
  CHECK(refusal({"train.offload=optimizer", "train.offload_dir=/tmp"}).empty());
  CHECK(refusal({"train.offload=all", "train.recompute=blocks"}).empty());
}
