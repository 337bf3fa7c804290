#include "temper/dist/device_transport.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/base/plugin.h"
#include "temper/dist/nccl/nccl.h"

namespace temper::dist {
namespace {

// Whether no two ranks of this machine share a device: NCCL refuses that.
bool has_own_device(at::DeviceType kind) {
  const std::optional<int64_t> ranks = ranks_on_machine();
  return ranks && *ranks <= c10::impl::getDeviceGuardImpl(kind)->deviceCount();
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, std::chrono::milliseconds longest_wait) {
  const char* setting = std::getenv("TEMPER_NCCL");
  if ((setting && std::string_view(setting) == "off") || !has_own_device(at::kCUDA)) return {};
  static Plugin plugin("libtemper_nccl.so");
  if (!plugin.is_built()) return {};
  auto* make = plugin.function<decltype(temper_make_nccl)>("temper_make_nccl");
  check(plugin.problem().empty(), "the plugin with NCCL does not load: ", plugin.problem(),
        "; TEMPER_NCCL=off goes through the host's memory");
  return c10::intrusive_ptr<c10d::Backend>::reclaim(make(store, rank, size, longest_wait.count()));
}

struct Transports {
  std::mutex mutex;
  std::map<at::DeviceType, MakeTransport> by_kind{{at::kCUDA, &make_nccl}};
};
Transports& transports() {
  static Transports all;
  return all;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_transport(at::DeviceType kind,
                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size,
                                                 std::chrono::milliseconds longest_wait) {
  Transports& all = transports();
  MakeTransport make = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_kind.find(kind);
    if (found != all.by_kind.end()) make = found->second;
  }
  return make ? make(store, rank, size, longest_wait) : c10::intrusive_ptr<c10d::Backend>();
}

void set_transport(at::DeviceType kind, MakeTransport make) {
  Transports& all = transports();
  const std::lock_guard lock(all.mutex);
  all.by_kind[kind] = make;
}

}  // namespace temper::dist
