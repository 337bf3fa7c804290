#include "temper/train/joint/joint_runs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "temper/base/error.h"
#include "temper/models/files/load.h"
#include "temper/nn/weights/stored_value.h"
#include "temper/ops/autograd.h"

namespace temper::train {
namespace {

thread_local JointRun* run_of_thread = nullptr;

// What a graph holds of a pass: where it goes away without a backward pass, none is waited for.
class HeldPart {
 public:
  HeldPart(std::shared_ptr<JointPass> pass, size_t part) : pass_(std::move(pass)), part_(part) {}
  ~HeldPart() {
    if (!taken_) pass_->leave(part_);
  }
  HeldPart(const HeldPart&) = delete;
  HeldPart& operator=(const HeldPart&) = delete;
  const std::shared_ptr<JointPass>& take(std::vector<at::Tensor> gradients) {
    check(!taken_, "a second backward pass through one that runs share");
    taken_ = true;
    pass_->take(part_, std::move(gradients));
    return pass_;
  }

 private:
  const std::shared_ptr<JointPass> pass_;
  const size_t part_;
  bool taken_ = false;
};

}  // namespace

JointRun* JointRun::current() { return run_of_thread; }

// Whether the run's base is that of the others.
bool JointRun::begin(const std::string& directory, const models::Storage& storage,
                     std::optional<uint64_t> seed) {
  if (!runs_.model_) runs_.model_ = std::make_unique<JointModel>(directory, storage, seed);
  return has_base_ = runs_.model_->is(directory, storage, seed.has_value());
}

std::unique_ptr<models::CausalLM> JointRun::load(const std::string& directory,
                                                 const models::Storage& storage) {
  return begin(directory, storage, {}) ? runs_.model_->share()
                                       : models::load_model(directory, storage);
}

std::unique_ptr<models::ScalarModel> JointRun::load_scalar(const std::string& directory,
                                                           const models::Storage& storage,
                                                           uint64_t seed) {
  return begin(directory, storage, seed) ? runs_.model_->share_scalar(seed)
                                         : models::load_scalar_model(directory, storage, seed);
}

std::unique_ptr<models::CausalLM> JointRun::load_frozen(const std::string& directory,
                                                        const models::Storage& storage) {
  for (const auto& model : runs_.frozen_)
    if (model->is(directory, storage, false)) return model->share();
  return runs_.frozen_.emplace_back(std::make_unique<JointModel>(directory, storage))->share();
}

void JointRun::share_passes(models::Model& policy, const models::LoraConfig& lora) {
  if (!has_base_ || !lora.modules_to_save.empty() || !lora.trained_tokens.empty()) return;
  policy_ = &policy;
  lora_ = lora;
}

bool JointRun::shares(const models::Model& model, const ForwardPass& pass,
                      const PassOptions& options) const {
  const bool drops = options.dropout && (lora_.dropout > 0 || pass.dropout.noise_alpha != 0);
  return &model == policy_ && !drops && pass.adapters.empty() && pass.trains() &&
         pass.forest->rows.empty() && !pass.kept && !(options.watched && pass.routers);
}

// The joint model's, of the policy's.
int JointRun::adapter(int index) {
  if (index < 0) return index;
  for (const auto& [own, joint] : adapters_)
    if (own == index) return joint;
  adapters_.emplace_back(index, runs_.model_->add(*policy_, lora_, index));
  return adapters_.back().second;
}

ops::TokenLogp JointRun::token_logp(const ForwardPass& pass, const PassOptions& options) {
  const std::vector<at::Tensor> found = outputs(pass, options);
  return {found[0], found[1], found[2]};
}

at::Tensor JointRun::hidden(const ForwardPass& pass, const PassOptions& options) {
  return outputs(pass, options)[0];
}

std::vector<at::Tensor> JointRun::outputs(const ForwardPass& pass, const PassOptions& options) {
  // What sampling has packed of the run's own view of the base would stay, for each run.
  policy_->each_parameter([](const std::string&, nn::Parameter& p) { p.release(); });
  Call call;
  call.request = {&pass, options, adapter(options.adapter), at::GradMode::is_enabled()};
  call.keeps_panels = nn::keeps_panels();
  wait(call);
  if (!call.request.trains) return call.request.out;
  // The graph of the pass is the joint model's: the run's own begins here.
  ops::Recording recording({at::zeros({}).requires_grad_()});
  const auto held = std::make_shared<HeldPart>(std::move(call.made), call.part);
  return recording.outputs(call.request.out, [this, held](const ops::Gradients& d) {
    Call back;
    back.backward = true;
    back.made = held->take(d.all());
    wait(back);
    return std::vector<at::Tensor>{};
  });
}

// Until the call was answered, other threads work.
void JointRun::wait(Call& call) {
  std::unique_lock lock(runs_.mutex_);
  call.number = runs_.calls_++;
  call_ = &call;
  state_ = State::kWaiting;
  runs_.turn_ = nullptr;
  runs_.turned_.notify_all();
  runs_.turned_.wait(lock, [this] { return runs_.turn_ == this; });
  call_ = nullptr;
  if (call.error) std::rethrow_exception(call.error);
}

void JointRuns::run(const std::vector<std::function<void()>>& runs) {
  for (const auto& work : runs) {
    JointRun& run = runs_.emplace_back(JointRun(*this));
    run.thread_ = std::thread([this, &run, work] {
      {
        std::unique_lock lock(mutex_);
        turned_.wait(lock, [&] { return turn_ == &run; });
      }
      run_of_thread = &run;
      work();
      const std::lock_guard lock(mutex_);
      run.state_ = JointRun::State::kEnded;
      turn_ = nullptr;
      turned_.notify_all();
    });
  }
  for (bool goes_on = true; goes_on;) {
    for (JointRun& run : runs_)
      if (run.state_ == JointRun::State::kReady) resume(run);
    goes_on = serve();
  }
  for (JointRun& run : runs_) run.thread_.join();
  runs_.clear();
  model_.reset();
  frozen_.clear();
}

// Until it waits or ends.
void JointRuns::resume(JointRun& run) {
  std::unique_lock lock(mutex_);
  turn_ = &run;
  turned_.notify_all();
  turned_.wait(lock, [this] { return turn_ == nullptr; });
  if (run.state_ != JointRun::State::kEnded) return;
  for (const auto& [own, joint] : run.adapters_) ended_.push_back(joint);
  run.adapters_.clear();
  remove_ended();
}

// A run that fails between the passes leaves its part of one that others go back through: its
// adapter stays until then, as the graph reads it.
void JointRuns::remove_ended() {
  std::erase_if(open_, [](const Open& open) { return open.pass.expired(); });
  if (!open_.empty()) return;
  for (const int adapter : ended_) model_->remove(adapter);
  ended_.clear();
}

// Answers some of the calls. False: there are none. A pass goes back before another one that trains
// is made, so that activations of one are in memory: until then only its own runs are served.
bool JointRuns::serve() {
  if (serve_backward()) return true;
  std::vector<JointRun*> waiting, first;
  for (JointRun& run : runs_) {
    if (run.state_ != JointRun::State::kWaiting || run.call_->backward) continue;
    waiting.push_back(&run);
    const auto has = [&](const Open& open) {
      return std::ranges::find(open.runs, &run) != open.runs.end();
    };
    if (std::ranges::any_of(open_, has)) first.push_back(&run);
  }
  if (waiting.empty()) return false;
  serve_forward(sharing(first.empty() ? waiting : first));
  return true;
}

bool JointRuns::serve_backward() {
  remove_ended();
  const auto ready =
      std::ranges::find_if(open_, [](const Open& open) { return open.pass.lock()->is_ready(); });
  if (ready == open_.end()) return false;
  const std::shared_ptr<JointPass> pass = ready->pass.lock();
  open_.erase(ready);
  std::exception_ptr error;
  try {
    pass->backward();
  } catch (...) {
    error = std::current_exception();
  }
  for (JointRun& run : runs_) {
    if (run.state_ != JointRun::State::kWaiting || run.call_->made != pass) continue;
    run.call_->error = error;
    run.state_ = JointRun::State::kReady;
  }
  remove_ended();
  return true;
}

// Whose calls make the next pass: who has waited longest, and the others that fit, in this order.
std::vector<JointRun*> JointRuns::sharing(std::vector<JointRun*> waiting) const {
  std::ranges::sort(waiting, {}, [](const JointRun* run) { return run->call_->number; });
  std::vector<JointRun*> chosen;
  int64_t tokens = 0;
  for (JointRun* run : waiting) {
    const JointRun::Call& call = *run->call_;
    const int64_t more = call.request.pass->forest->num_tokens();
    const bool fits =
        chosen.empty() || (model_->mixes_adapters() && tokens + more <= most_tokens_ &&
                           call.keeps_panels == chosen[0]->call_->keeps_panels &&
                           JointPass::fit(call.request, chosen[0]->call_->request));
    if (!fits) continue;
    tokens += more;
    chosen.push_back(run);
  }
  return chosen;
}

void JointRuns::serve_forward(const std::vector<JointRun*>& runs) {
  std::vector<JointPass::Request*> requests;
  for (JointRun* run : runs) requests.push_back(&run->call_->request);
  std::shared_ptr<JointPass> pass;
  std::exception_ptr error;
  try {
    std::optional<nn::TransientPanels> packs_once;
    if (!runs[0]->call_->keeps_panels) packs_once.emplace();
    pass = std::make_shared<JointPass>(*model_, requests);
  } catch (...) {
    error = std::current_exception();
  }
  if (pass && requests[0]->trains) open_.push_back({pass, runs});
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i]->call_->error = error;
    runs[i]->call_->made = pass;
    runs[i]->call_->part = i;
    runs[i]->state_ = JointRun::State::kReady;
  }
}

}  // namespace temper::train
