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
  const auto ranks = static_cast<int64_t>(all.size());
  const AxisSizes sizes = section.sizes(ranks, where);
  if (ranks == 1) return Mesh();
  const auto own = std::find(all.begin(), all.end(), rank_) - all.begin();
  // The places in the mesh that differ from this rank's along some axes alone, ascending.
  const auto places_along = [&](auto differs) {
    std::vector<int64_t> found;
    for (int64_t place = 0; place < ranks; ++place) {
      bool is_in = true;
      int64_t rest = place, rest_of_own = own;
      for (size_t i = axes().size(); i-- > 0; rest /= sizes[i], rest_of_own /= sizes[i])
        is_in &= differs(axes()[i]) || rest % sizes[i] == rest_of_own % sizes[i];
      if (is_in) found.push_back(place);
    }
    return found;
  };
  const auto group = [&](const char* name, const std::vector<int64_t>& places, bool in_step = false,
                         std::shared_ptr<Group> twins = nullptr) {
    std::vector<int> members;
    for (const int64_t place : places) members.push_back(all[static_cast<size_t>(place)]);
    return gloo_->group(temper::str(name, "/", places[0]), members, in_step, twins);
  };
  const auto everywhere = places_along([](const Axis&) { return true; }),
             rows = places_along([](const Axis& axis) { return axis.own_rows(); }),
             same = places_along([](const Axis& axis) { return axis.shares_rows(); }),
             work = places_along([](const Axis& axis) { return axis.divides_work(); }),
             context = places_along([](const Axis& axis) { return axis.divides_tokens(); });
  Mesh mesh;
  const bool in_step = sizes.fsdp > 1, whole = rows == everywhere;
  mesh.world = group("world", everywhere, whole && in_step);
  mesh.by_expert = sizes.expert > 1;
  if (work.size() > 1) mesh.tensor = group(mesh.by_expert ? "expert" : "tensor", work);
  if (context.size() > 1) mesh.context = group("context", context);
  mesh.same_rows = same == work      ? mesh.tensor
                   : same == context ? mesh.context
                                     : group("same", same);
  mesh.data_parallel = whole ? mesh.world : group("rows", rows, in_step, mesh.same_rows);
  const auto along = [&](const char* name, auto which) {
    const std::vector<int64_t> places = places_along(which);
    if (places.size() == 1) return alone();
    if (places == everywhere) return mesh.world;
    return places == rows ? mesh.data_parallel : group(name, places);
  };
  mesh.tokens = along("tokens", [](const Axis& axis) { return axis.own_tokens(); });
  mesh.data = along("data", [](const Axis& axis) { return !axis.divides_model(); });
  mesh.fsdp = along("fsdp", [](const Axis& a) { return a.divides == Axis::Divides::kWeights; });
  mesh.model = along("model", [](const Axis& axis) { return axis.divides_model(); });
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
