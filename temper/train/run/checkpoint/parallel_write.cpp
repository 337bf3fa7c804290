#include "temper/train/run/checkpoint/parallel_write.h"

#include <sys/vfs.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/dist/environment.h"

namespace temper::train {
namespace fs = std::filesystem;

void on_all(dist::Group& group, const std::function<void()>& work) {
  std::string error;
  try {
    work();
  } catch (const std::exception& e) {
    error = str("rank ", dist::run_rank(group), ": ", e.what());
  }
  for (const std::string& one : group.all_gather(error)) check(one.empty(), one);
}

namespace {

// Whether hosts that write to different places of one file see each other's writes whole: a client
// of these file systems may write back more of a page than it was given.
bool is_coherent(const std::string& directory) {
  struct statfs about{};
  if (::statfs(directory.c_str(), &about) != 0) return false;
  constexpr uint32_t kNfs = 0x6969, kSmb = 0x517B, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42,
                     k9p = 0x01021997, kFuse = 0x65735546, kAfs = 0x5346414F;
  const auto type = static_cast<uint32_t>(about.f_type);
  for (const uint32_t other : {kNfs, kSmb, kCifs, kSmb2, k9p, kFuse, kAfs})
    if (type == other) return false;
  return true;
}

// Machines may share a name ("localhost").
std::string this_machine() {
  try {
    return dist::host_name() + " " + read_file("/proc/sys/kernel/random/boot_id", 64);
  } catch (const Error&) {
    return dist::host_name();
  }
}

}  // namespace

bool may_write_together(const std::string& directory, dist::Group& group) {
  const std::string file = directory + "/seen";
  std::string token;
  on_all(group, [&] {
    if (group.rank() > 0) return;
    std::random_device device;
    token = str(device(), " ", device(), " ", device(), " ", device());
    write_file_atomic(file, token);
  });
  token = group.all_gather(token)[0];
  const std::vector<std::string> hosts = group.all_gather(this_machine());
  const bool one_host = std::set<std::string>(hosts.begin(), hosts.end()).size() == 1;
  bool seen = one_host || is_coherent(directory);
  try {
    seen = read_file(file, token.size()) == token && seen;
    const std::string own = str(file, ".", group.rank());
    write_file_atomic(own, "");
    fs::remove(own);
  } catch (const std::exception&) {  // it is another directory, or may not be written here
    seen = false;
  }
  const bool by_all = group.all_reduce_max(seen ? 0 : 1) == 0;
  if (group.rank() == 0) fs::remove(file);
  return by_all;
}

std::function<void()> begin_parts(const std::string& directory,
                                  std::map<std::string, TensorMap> files, const dist::Mesh& mesh,
                                  Snapshot* snapshot) {
  on_all(*mesh.world, [&] {
    for (const auto& [name, tensors] : files)
      if (mesh.world->rank() == 0) begin_safetensors(directory + "/" + name, tensors);
  });
  if (mesh.data->rank() > 0) return [] {};  // another replica writes the same
  for (auto& [file, tensors] : files) {
    if (!snapshot) break;
    TensorMap parts = tensors;
    std::erase_if(parts, [](const auto& tensor) { return !tensor.second.own; });
    for (const auto& [name, part] : snapshot->of(parts)) tensors[name] = part;
  }
  return [directory, files = std::move(files)] {
    for (const auto& [name, tensors] : files) write_own_parts(directory + "/" + name, tensors);
  };
}

}  // namespace temper::train
