// The keys of other trainers for metrics and what a run logs, sorted.
#include "temper/cli/synonyms/notes.h"
#include "temper/cli/synonyms/tables.h"

namespace temper::cli {
namespace {

constexpr KeySynonym kMetricsKeys[] = {
    {"backend_kwargs", "metrics.sinks", kLiveLogs},
    {"comet_*", "metrics.sinks", kLiveLogs},
    {"diagnostics_flat_tolerance", "", "metrics of rewards say it: temper list metrics"},
    {"diagnostics_warning_interval", "", "metrics of rewards say it: temper list metrics"},
    {"disable_log_stats", "", "every step's numbers are metrics"},
    {"disable_tqdm", "", "without a terminal there is no progress line"},
    {"enable_opentelemetry", "metrics.sinks", kLiveLogs},
    {"flush_every_n_steps", "", "every step is written at once"},
    {"gradio_*", "", "temper serve and temper chat talk to a model"},
    {"include_num_input_tokens_seen", "", "every step's tokens are logged"},
    {"include_tkps", "", "every step's tokens a second are logged"},
    {"include_tokens_per_second", "", "every step's tokens a second are logged"},
    {"log_completions", "rl.save_rollouts", kRollouts},
    {"log_completions_steps", "rl.save_rollouts", kRollouts},
    {"log_every_n_steps", "metrics.log_every", "of the console; files have every step"},
    {"log_level", "", "the program prints what a user reads"},
    {"log_level_replica", "", "one rank writes for all"},
    {"log_multimodal", "rl.save_rollouts", kRollouts},
    {"log_on_each_node", "", "one rank writes for all"},
    {"log_peak_memory_stats", "", "every step's peak memory is logged"},
    {"log_unique_prompts", "rl.save_rollouts", kRollouts},
    {"logger", "metrics.sinks", ""},
    {"logging_first_step", "metrics.log_every", "files have every step"},
    {"logging_nan_inf_filter", "", "a step whose numbers are not finite ends the run"},
    {"logging_steps", "metrics.log_every", "of the console; files have every step"},
    {"logging_strategy", "metrics.log_every", kCountsSteps},
    {"metric_logger", "metrics.sinks", ""},
    {"metrics_logging_options", "metrics.sinks", ""},
    {"metrics_prefix", "", "metrics have one name: temper list metrics"},
    {"mlflow_*", "metrics.sinks", kLiveLogs},
    {"num_completions_to_print", "rl.save_rollouts", kRollouts},
    {"otel_*", "metrics.sinks", "write metrics.sinks: [console, jsonl, prometheus]"},
    {"pbar_description", "", "the progress line has the step's metrics"},
    {"project", "metrics.sinks", kLiveLogs},
    {"project_name", "metrics.sinks", ""},
    {"prometheus.*", "metrics.sinks", "write metrics.sinks: [console, jsonl, prometheus]"},
    {"report_to", "metrics.sinks", kLiveLogs},
    {"rollout_data_dir", "rl.save_rollouts", kRollouts},
    {"trace.*", "rl.save_rollouts", kRollouts},
    {"trackio_*", "metrics.sinks", kLiveLogs},
    {"use_comet", "metrics.sinks", kLiveLogs},
    {"use_mlflow", "metrics.sinks", kLiveLogs},
    {"use_otel_metrics", "metrics.sinks", "write metrics.sinks: [console, jsonl, prometheus]"},
    {"use_tensorboard", "metrics.sinks", "write metrics.sinks: [console, jsonl, tensorboard]"},
    {"use_trackio", "metrics.sinks", kLiveLogs},
    {"use_wandb", "metrics.sinks", kWandb},
    {"wandb_entity", "metrics.sinks", ""},
    {"wandb_log_model", "", kUploads},
    {"wandb_log_unique_prompts", "rl.save_rollouts", kRollouts},
    {"wandb_mode", "metrics.sinks", kWandb},
    {"wandb_project", "metrics.sinks", ""},
    {"wandb_run_id", "", kWandb},
    {"wandb_watch", "metrics.sinks", kWandb},
};

}  // namespace

std::span<const KeySynonym> metrics_synonyms() { return kMetricsKeys; }

}  // namespace temper::cli
