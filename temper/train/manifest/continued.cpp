#include "temper/train/manifest/continued.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/base/sha256.h"
#include "temper/train/manifest/manifest_inputs.h"

namespace temper::train {
namespace {

// The line of a manifest that this run's continues: of the run that the checkpoint is of.
std::string line_continued(const Checkpoint& resumed) {
  const Json known = resumed.values.value(Checkpoints::kManifestLine, Json());
  if (known.is_string()) return known.get<std::string>();
  const std::string run =
      std::filesystem::path(resumed.directory).parent_path().parent_path().string();
  try {
    for (const ManifestLine& line : read_manifest(run + "/manifest.jsonl"))
      if (line.is_step() && line.step() == resumed.step) return sha256_hex(line.text);
  } catch (const Error&) {  // the earlier run answers for it
  }
  return "";
}

}  // namespace

std::unique_ptr<Manifest> open_manifest(RunConfig& config, const dist::Mesh& mesh,
                                        const Checkpoint* resumed, bool own, bool inputs_changed,
                                        const std::function<void(const std::string&)>& warn) {
  Manifest::MakeInputs inputs = manifest_inputs(config, mesh);
  std::unique_ptr<Manifest> manifest;
  try {
    if (resumed && own) manifest = Manifest::resume(config.output_dir, resumed->step);
  } catch (const BrokenManifest& e) {
    warn(str(e.what(), "; a new manifest begins after step ", resumed->step));
  }
  if (!resumed) return Manifest::begin(config.output_dir, std::move(inputs));
  const auto continued = [inputs = std::move(inputs), step = resumed->step,
                          weights = manifest ? "" : resumed->directory](const auto& cancelled) {
    Json line = {{"after", step}};
    line.update(inputs(cancelled));
    if (!weights.empty()) line["weights"] = weight_digests(weights);
    return line;
  };
  if (!manifest) return Manifest::begin(config.output_dir, continued, line_continued(*resumed));
  const Json before = manifest->inputs();
  const bool same = before.value("config", Json()) == settings_digest(config) &&
                    before.value("mesh", Json()) == mesh_of(config, mesh);
  if (!same || inputs_changed) manifest->add_inputs(continued);
  return manifest;
}

}  // namespace temper::train
