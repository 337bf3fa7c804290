#include "temper/dist/world.h"

#include <algorithm>
#include <atomic>

#include "temper/base/error.h"
#include "temper/dist/environment.h"
#include "temper/dist/gloo.h"
#include "temper/dist/peer_watch.h"
#include "temper/dist/rendezvous.h"

namespace temper::dist {

namespace {
std::atomic<bool> met{false};
static_assert(std::atomic<bool>::is_always_lock_free);
constexpr double kLongestMinutes = 1e6;  // larger values overflow nanoseconds of 64 bits
}  // namespace

bool have_met() { return met; }

World::World(const MeshSection& section, const std::function<bool()>& stop)
    : heartbeat_timeout_seconds_(section.heartbeat_timeout_seconds) {
  const Environment environment = read_environment();
  rank_ = environment.rank;
  size_ = environment.size;
  if (size_ == 1) return;
  patience_ = std::make_unique<Patience>(environment.timeout, stop);
  gloo_ = std::make_unique<GlooWorld>(
      environment, *patience_,
      std::chrono::milliseconds(
          static_cast<int64_t>(std::min(section.timeout_minutes, kLongestMinutes) * 60 * 1000)));
}

World::~World() = default;

std::string World::address() const { return gloo_ ? gloo_->address() : "127.0.0.1"; }

void World::tell(const std::string& name, const std::string& text) {
  if (gloo_) gloo_->put(name, text);
}

std::string World::ask(const std::string& name, const std::string& missing) const {
  check(gloo_ != nullptr, missing);
  while (true) {
    if (std::optional<std::string> text = gloo_->find(name)) return *text;
    patience_->pause(missing);
  }
}

void World::check_meeting_place() const {
  if (gloo_) gloo_->find("nothing");
}

Mesh World::mesh(const MeshSection& section, const std::vector<int>& all,
                 const std::string& where) {
  const int ranks = static_cast<int>(all.size());
  const int data = static_cast<int>(section.data_ranks(ranks, where));
  if (ranks == 1) return Mesh();
  const int fsdp = static_cast<int>(section.fsdp);
  const int tensor = static_cast<int>(section.tensor * section.expert);  // one of them is 1
  const int own = static_cast<int>(std::find(all.begin(), all.end(), rank_) - all.begin());
  const int d = own / (fsdp * tensor), f = own / tensor % fsdp, t = own % tensor;
  // `count` ranks from the place `first` in the mesh on, `step` places apart.
  const auto ranks_from = [&](int first, int step, int count) {
    std::vector<int> found;
    for (int i = 0; i < count; ++i) found.push_back(all.at(static_cast<size_t>(first + i * step)));
    return found;
  };
  const auto group = [&](const char* axis, int first, int step, int count, bool in_step = false) {
    if (count == 1) return alone();
    return gloo_->group(temper::str(axis, "/", first), ranks_from(first, step, count), in_step);
  };
  Mesh mesh;
  const bool in_step = fsdp > 1, whole = tensor == 1;
  mesh.world = group("world", 0, 1, ranks, whole && in_step);
  mesh.by_expert = section.expert > 1;
  mesh.tensor = group(mesh.by_expert ? "expert" : "tensor", (d * fsdp + f) * tensor, 1, tensor);
  mesh.data_parallel = whole
                           ? mesh.world
                           : gloo_->group(temper::str("rows/", t),
                                          ranks_from(t, tensor, data * fsdp), in_step, mesh.tensor);
  mesh.data = fsdp == 1 ? mesh.data_parallel : group("data", f * tensor + t, fsdp * tensor, data);
  mesh.fsdp = fsdp == 1   ? alone()
              : data == 1 ? mesh.data_parallel
                          : group("fsdp", d * fsdp * tensor + t, tensor, fsdp);
  mesh.model = data == 1 ? mesh.world : group("model", d * fsdp * tensor, 1, fsdp * tensor);
  mesh.watch = watch(*mesh.world, all);
  met = true;
  return mesh;
}

// Ends this process where one of these ranks is gone.
std::shared_ptr<PeerWatch> World::watch(Group& group, const std::vector<int>& ranks) const {
  return std::make_shared<PeerWatch>(
      group, address(), heartbeat_timeout_seconds_,
      [ranks, gloo = *gloo_, end = end_process(rank_)](LostPeer lost) {
        lost.rank = ranks.at(static_cast<size_t>(lost.rank));
        gloo.note_lost_peer(lost.text());
        end(lost);
      });
}

Mesh World::role_mesh(const RolesSection& roles) {
  const std::vector<int> ranks = roles.group_of(rank_);
  if (ranks.size() == 1) return Mesh();
  Mesh mesh = Mesh::tensor_parallel(gloo_->group(temper::str("role/", ranks.front()), ranks));
  mesh.watch = watch(*mesh.world, ranks);
  met = true;
  return mesh;
}

}  // namespace temper::dist
