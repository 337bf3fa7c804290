#include "temper/train/weights_check.h"

#include <ATen/ATen.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/dist/environment.h"
#include "temper/metrics/trace.h"

namespace temper::train {
namespace {

// Along which axes a parameter is divided: bit 0 by FSDP, bit 1 by tensor parallelism.
constexpr size_t kKinds = 4;

struct Hashed {
  std::string name;
  size_t kind;
  uint64_t hash;
};

// What one rank tells the others.
struct Report {
  int rank = 0;  // of the run
  std::string host;
  int fsdp = 0, tensor = 0;  // its place on these axes
  std::array<uint64_t, kKinds> hashes{};

  // Whether both hold the same parts of the parameters of this kind.
  bool holds_same(const Report& other, size_t kind) const {
    return (!(kind & 1) || fsdp == other.fsdp) && (!(kind & 2) || tensor == other.tensor);
  }
  std::string name() const { return str("rank ", rank, " on ", host); }
};

std::string write(const Report& r) {
  return dump_json(
      {{"rank", r.rank}, {"host", r.host}, {"place", {r.fsdp, r.tensor}}, {"hashes", r.hashes}});
}

Report read(const std::string& text) {
  const Json json = parse_json(text, "another rank");
  return {json["rank"].get<int>(), json["host"].get<std::string>(), json["place"][0].get<int>(),
          json["place"][1].get<int>(), json["hashes"].get<std::array<uint64_t, kKinds>>()};
}

// Of which rank's parameters of which kind others differ.
struct Difference {
  size_t kind, first, other;  // ranks by their place in the list
};

std::optional<Difference> first_difference(const std::vector<Report>& ranks) {
  for (size_t other = 1; other < ranks.size(); ++other)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      size_t first = 0;
      while (!ranks[first].holds_same(ranks[other], kind)) ++first;
      if (ranks[first].hashes[kind] != ranks[other].hashes[kind])
        return Difference{kind, first, other};
    }
  return {};
}

class WeightsCheck : public Hook {
 public:
  WeightsCheck(int64_t every, Roles& roles, const dist::Mesh& mesh)
      : every_(every), roles_(roles), mesh_(mesh) {}

  void on_begin(RunDirectory&) override {
    check_alike(of_all(), [](const std::string& what) {
      return what + " at the start: give all hosts the same model files";
    });
  }
  void after_step(const MetricsRow& row) override {
    if (every_ == 0 || row.step() % every_ != 0) return;
    check_alike(of_trained(), [&](const std::string& what) {
      const std::string last =
          agreed_ > 0 ? str("after step ", agreed_) : "at the start of this process";
      return str("step ", row.step(), ": ", what, "; they were the same ", last,
                 ". A host's memory or processor may be faulty. Checkpoints made since may be "
                 "wrong: delete them, and the same command goes on from an earlier one");
    });
    agreed_ = row.step();
  }

 private:
  static void add(std::vector<Hashed>& to, const std::string& name, const nn::Parameter& p) {
    const at::Tensor& own = p.trained();
    if (!own.defined()) return;  // quantized
    const at::Tensor bytes = own.detach().contiguous();
    const nn::Placement* placement = p.placement();
    const size_t kind =
        (placement && placement->fsdp ? 1 : 0) + (placement && placement->tensor ? 2 : 0);
    to.push_back({name, kind, XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes())});
  }
  std::vector<Hashed> of_all() const {
    std::vector<Hashed> hashes;
    for (nn::Module* model : roles_.models())
      model->each_parameter(
          [&](const std::string& name, nn::Parameter& p) { add(hashes, name, p); });
    return hashes;
  }
  std::vector<Hashed> of_trained() const {
    std::vector<Hashed> hashes;
    for (const auto& trainable : roles_.trainables)
      for (const NamedParameter& p : trainable->optimizer.parameters())
        add(hashes, p.name, *p.parameter);
    return hashes;
  }

  // Throws what `message` makes of "rank 1 on b holds other weights than rank 0 on a (NAME)".
  template <class Message>
  void check_alike(const std::vector<Hashed>& own, const Message& message) const {
    const trace::Span span("comparison of weights between ranks");
    dist::Group& world = *mesh_.world;
    if (world.size() == 1) return;
    std::vector<Report> ranks;
    for (const std::string& text : world.all_gather(write(report(own))))
      ranks.push_back(read(text));
    const std::optional<Difference> found = first_difference(ranks);
    if (!found) return;
    throw WeightsDiffer(message(str(ranks[found->other].name(), " holds other weights than ",
                                    ranks[found->first].name(), " (", first_name(own, *found),
                                    ")")));
  }

  Report report(const std::vector<Hashed>& own) const {
    // The mesh counts the ranks that train alone.
    const dist::Environment environment = dist::read_environment();
    Report mine{environment.size > 1 ? environment.rank : mesh_.world->rank(), dist::host_name(),
                mesh_.fsdp->rank(), mesh_.tensor->rank(), {}};
    std::array<std::vector<uint64_t>, kKinds> hashes;
    for (const Hashed& parameter : own) hashes[parameter.kind].push_back(parameter.hash);
    for (size_t kind = 0; kind < kKinds; ++kind)
      mine.hashes[kind] =
          XXH3_64bits(hashes[kind].data(), hashes[kind].size() * sizeof(uint64_t));
    return mine;
  }

  // Which parameter differs first. All ranks call this.
  std::string first_name(const std::vector<Hashed>& own, const Difference& found) const {
    Json hashes = Json::array();
    for (const Hashed& parameter : own)
      if (parameter.kind == found.kind) hashes.push_back(parameter.hash);
    const std::vector<std::string> all = mesh_.world->all_gather(dump_json(hashes));
    const Json first = parse_json(all[found.first], "another rank"),
               other = parse_json(all[found.other], "another rank");
    size_t i = 0;
    for (const Hashed& parameter : own) {
      if (parameter.kind != found.kind) continue;
      if (i >= first.size() || i >= other.size() || first[i] != other[i]) return parameter.name;
      ++i;
    }
    return "another number of parameters";
  }

  int64_t every_, agreed_ = 0;
  Roles& roles_;
  dist::Mesh mesh_;
};

}  // namespace

std::unique_ptr<Hook> weights_check(int64_t every, Roles& roles, const dist::Mesh& mesh) {
  return std::make_unique<WeightsCheck>(every, roles, mesh);
}

}  // namespace temper::train
