#include "temper/train/run/weights_check.h"

#include <ATen/ATen.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/dist/environment.h"
#include "temper/metrics/trace.h"

namespace temper::train {
namespace {

// How a tensor is sharded: along which axes, of which both may be.
constexpr size_t kByFsdp = 1, kByTensor = 2, kShardings = 4;

struct Hashed {
  std::string name;
  size_t sharding;
  uint64_t hash;
};

// One rank's hashes for the others.
struct DigestReport {
  int rank = 0;  // number of the rank in the run
  std::string host;
  int fsdp = 0, tensor = 0;  // its place on these axes
  std::array<uint64_t, kShardings> hashes{};

  // Whether both hold the same parts of tensors that are sharded so.
  bool holds_same(const DigestReport& other, size_t sharding) const {
    return (!(sharding & kByFsdp) || fsdp == other.fsdp) &&
           (!(sharding & kByTensor) || tensor == other.tensor);
  }
  std::string name() const { return str("rank ", rank, " on ", host); }
};

std::string to_text(const DigestReport& r) {
  return dump_json(
      {{"rank", r.rank}, {"host", r.host}, {"place", {r.fsdp, r.tensor}}, {"hashes", r.hashes}});
}

DigestReport parse_report(const std::string& text) {
  const Json json = parse_json(text, "another rank");
  return {json["rank"].get<int>(), json["host"].get<std::string>(), json["place"][0].get<int>(),
          json["place"][1].get<int>(), json["hashes"].get<std::array<uint64_t, kShardings>>()};
}

// Two ranks, by their index in the list, that differ.
struct Difference {
  size_t sharding;
  // first rank that holds what most do, and first rank that does not
  size_t usual, other;
  int alike;  // number of ranks that hold what `usual` does
};

// How many of the ranks hold the same as this one.
int alike(const std::vector<DigestReport>& ranks, size_t one, size_t sharding) {
  int count = 0;
  for (const DigestReport& r : ranks)
    count +=
        r.holds_same(ranks[one], sharding) && r.hashes[sharding] == ranks[one].hashes[sharding];
  return count;
}

std::optional<Difference> find_difference(const std::vector<DigestReport>& ranks) {
  for (size_t sharding = 0; sharding < kShardings; ++sharding)
    for (size_t a = 0; a < ranks.size(); ++a)
      for (size_t b = a + 1; b < ranks.size(); ++b) {
        if (!ranks[a].holds_same(ranks[b], sharding) ||
            ranks[a].hashes[sharding] == ranks[b].hashes[sharding])
          continue;
        const int with_a = alike(ranks, a, sharding), with_b = alike(ranks, b, sharding);
        return with_a >= with_b ? Difference{sharding, a, b, with_a}
                                : Difference{sharding, b, a, with_b};
      }
  return {};
}

class WeightsCheck : public Hook {
 public:
  WeightsCheck(int64_t every, Roles& roles, const dist::Mesh& mesh)
      : every_(every), roles_(roles), mesh_(mesh) {}

  void on_begin(RunDirectory&) override {
    check_alike(of_all(), [](const std::string& what) {
      return what +
             " at the start: all hosts must read the same model, adapter and checkpoint files";
    });
  }
  void after_step(const MetricsRow& row) override {
    if (every_ > 0 && row.step() % every_ == 0) check_trained(row.step());
  }
  void before_save(int64_t step) override {
    if (every_ > 0) check_trained(step);
  }

 private:
  void check_trained(int64_t step) {
    if (step == last_match_) return;
    check_alike(of_trained(), [&](const std::string& what) {
      return str("step ", step, ": ", what, "; they were the same ",
                 last_match_ ? str("after step ", *last_match_) : "at the start of this process",
                 ": the memory or CPU of a host may be faulty. Nothing is saved; the same "
                 "command goes on from the last checkpoint");
    });
    last_match_ = step;
  }

  static Hashed hash_of(std::string name, const at::Tensor& tensor, size_t sharding) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
    return {std::move(name), sharding, XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes())};
  }
  static void add(std::vector<Hashed>& to, const std::string& name, const nn::Parameter& p) {
    if (!p.trained().defined()) return;  // quantized
    const nn::Placement* placement = p.placement();
    const size_t sharding = (placement && placement->fsdp ? kByFsdp : 0) |
                            (placement && placement->tensor ? kByTensor : 0);
    to.push_back(hash_of(name, p.trained(), sharding));
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
    for (const auto& trainable : roles_.trainables) {
      for (const NamedParameter& p : trainable->optimizer.parameters())
        add(hashes, p.name, *p.parameter);
      // Ranks at the same place of both axes have the same state, however it is sharded.
      trainable->optimizer.each_own_state([&](const std::string& name, const at::Tensor& part) {
        hashes.push_back(hash_of(name, part, kByFsdp | kByTensor));
      });
    }
    return hashes;
  }

  // Throws what `message` makes of "rank 1 on b holds other weights than rank 0 on a (NAME)".
  template <class Message>
  void check_alike(const std::vector<Hashed>& own, const Message& message) const {
    const trace::Span span("comparison of weights between ranks");
    dist::Group& world = *mesh_.world;
    std::vector<DigestReport> ranks;
    for (const std::string& text : world.all_gather(to_text(report(own))))
      ranks.push_back(parse_report(text));
    const std::optional<Difference> found = find_difference(ranks);
    if (!found) return;
    const std::string more = found->alike > 1 ? str(" and ", found->alike - 1, " more") : "";
    throw WeightsDiffer(message(str(ranks[found->other].name(), " holds other weights than ",
                                    ranks[found->usual].name(), more, " (",
                                    first_different_name(own, *found), ")")));
  }

  DigestReport report(const std::vector<Hashed>& own) const {
    DigestReport mine{dist::run_rank(*mesh_.world),
                      dist::host_name(),
                      mesh_.fsdp->rank(),
                      mesh_.tensor->rank(),
                      {}};
    std::array<std::vector<uint64_t>, kShardings> hashes;
    for (const Hashed& tensor : own) hashes[tensor.sharding].push_back(tensor.hash);
    for (size_t i = 0; i < kShardings; ++i)
      mine.hashes[i] = XXH3_64bits(hashes[i].data(), hashes[i].size() * sizeof(uint64_t));
    return mine;
  }

  // All ranks call this.
  std::string first_different_name(const std::vector<Hashed>& own, const Difference& found) const {
    Json tensors = Json::array();
    for (const Hashed& tensor : own)
      if (tensor.sharding == found.sharding) tensors.push_back({tensor.name, tensor.hash});
    const std::vector<std::string> all = mesh_.world->all_gather(dump_json(tensors));
    const Json usual = parse_json(all[found.usual], "another rank"),
               other = parse_json(all[found.other], "another rank");
    for (size_t i = 0; i < std::min(usual.size(), other.size()); ++i)
      if (usual[i] != other[i]) return usual[i][0].get<std::string>();
    return "another number of tensors";
  }

  int64_t every_;
  std::optional<int64_t> last_match_;  // the last step after which the ranks were compared
  Roles& roles_;
  dist::Mesh mesh_;
};

}  // namespace

std::unique_ptr<Hook> weights_check(int64_t every, Roles& roles, const dist::Mesh& mesh) {
  return std::make_unique<WeightsCheck>(every, roles, mesh);
}

}  // namespace temper::train
