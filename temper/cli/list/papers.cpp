#include "temper/cli/list/tables.h"
#include "temper/distill/strategy.h"
#include "temper/preference/losses.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::cli {
namespace {

// Methods that no registry names.
struct Method {
  const char *what, *paper;
  const char* where;  // keys, and files in temper/, with commas between them
};
constexpr Method kMethods[] = {
    // Training.
    {"orpo", "Hong et al., arXiv 2403.07691, equations 4, 6 and 7", "preference/orpo.cpp"},
    {"reward models; centering",
     "Ouyang et al., arXiv 2203.02155, equation 1; Eisenstein et al., arXiv 2312.09244, equation 3",
     "preference/reward.cpp"},
    {"QLoRA: NF4, double quantization", "Dettmers et al., arXiv 2305.14314, section 3, appendix E",
     "adapter.method, ops/native/kernels/quantized.cpp"},
    {"LoRA; rank-stabilized; LoRA+",
     "Hu et al., arXiv 2106.09685; Kalajdzievski, arXiv 2312.03732; Hayou et al., arXiv 2402.12354",
     "adapter.method, nn/lora.cpp"},
    {"DoRA; the norm is a constant in the gradient",
     "Liu et al., arXiv 2402.09353, equation 5, section 4.3", "adapter.use_dora"},
    {"warmup-stable-decay", "Hu et al. (MiniCPM), arXiv 2404.06395", "optimizer.schedule"},
    {"noise on embeddings", "Jain et al. (NEFTune), arXiv 2310.05914, algorithm 1",
     "train.neftune_alpha"},
    {"dynamic fine-tuning", "Wu et al., arXiv 2508.05629, equation 9", "sft.loss"},
    {"z-loss", "Chowdhery et al. (PaLM), arXiv 2204.02311, section 5", "train.z_loss"},
    {"load-balancing loss, over all layers at once",
     "Fedus et al. (Switch), arXiv 2101.03961, equations 4 to 6", "train.router_aux_loss"},
    {"activation checkpointing", "Chen et al., arXiv 1604.06174", "train.recompute, nn/unit.cpp"},
    {"sharded weights, gradients, optimizer state",
     "Rajbhandari et al. (ZeRO), arXiv 1910.02054, section 5; Zhao et al. (FSDP), arXiv 2304.11277",
     "mesh.fsdp, parallel/fsdp.cpp"},
    {"tensor parallelism", "Shoeybi et al. (Megatron-LM), arXiv 1909.08053, section 3",
     "mesh.tensor, nn/linear.cpp"},
    {"context parallelism, in zigzag",
     "Grattafiori et al. (Llama 3), arXiv 2407.21783, section 3.3.2; Brandon et al., arXiv "
     "2311.09431",
     "mesh.context, nn/token_share.h"},
    {"expert parallelism, of the same rows",
     "Lepikhin et al. (GShard), arXiv 2006.16668, section 3", "mesh.expert, nn/experts.cpp"},
    // Reinforcement learning.
    {"dual clip", "Ye et al., arXiv 1912.09729, equation 5", "rl.dual_clip"},
    {"KL estimators k1, k2, k3", "Schulman, \"Approximating KL divergence\", 2020",
     "rl.kl_estimator"},
    {"a reference that follows", "Gorbatovski et al. (TR-DPO), arXiv 2404.09656, equation 4",
     "rl.reference_update_every"},
    {"Frozen Lake and Sokoban as grids of text", "Wang et al. (RAGEN), arXiv 2504.20073",
     "env/frozen_lake.cpp, env/sokoban.cpp"},
    {"generalized advantage estimation", "Schulman et al., arXiv 1506.02438, equation 16",
     "rl/algorithms/gae.cpp"},
    {"KL to the reference in PPO's reward",
     "Ziegler et al., arXiv 1909.08593, section 2; Ouyang et al., arXiv 2203.02155, section 3.5",
     "rl/algorithms/ppo.cpp"},
    {"decoupled objective: weights proximal / behavior",
     "Hilton et al., arXiv 2110.00641; Fu et al. (AReaL), arXiv 2505.24298",
     "rl/importance_correction.cpp"},
    {"truncated importance weights",
     "Yao et al., \"Your efficient RL framework secretly brings you off-policy RL training\", 2025",
     "rl.importance_cap"},
    {"importance weights of completions", "Liu et al., \"When speed kills stability\", 2025",
     "rl.importance_correction"},
    {"policy loss of the tokens of highest entropy", "Wang et al., arXiv 2506.01939, section 5",
     "rl.top_entropy_fraction"},
    {"masked importance weights (IcePop)",
     "Zhao et al., \"Small leak can sink a great ship\", 2025; Ring-1T, arXiv 2510.18855",
     "rl.importance_bounds"},
    {"log-probabilities over the tokens that were left to sample from",
     "DeepSeek-AI, arXiv 2512.02556, section 3.1", "rollout.replay_sampling_mask"},
    {"in-flight weight updates, on a fixed schedule", "Piché et al. (PipelineRL), arXiv 2509.19128",
     "rollout.update"},
    {"straight-through gradient of rounded keys and values", "Bengio et al., arXiv 1308.3432",
     "rollout.cache_dtype"},
    // Distillation.
    {"reverse KL", "Gu et al. (MiniLLM), arXiv 2306.08543", "distill.divergence"},
    {"generalized Jensen-Shannon divergence", "Agarwal et al. (GKD), arXiv 2306.13649, section 2",
     "distill.jsd_beta"},
    {"completions of the teacher", "Kim and Rush, arXiv 1606.07947, section 3.2", "distill.seq_kd"},
    {"teachers with another tokenizer",
     "Patiño et al. (GOLD), 2025; Boizard et al. (ULD), arXiv 2402.12030",
     "distill.cross_tokenizer, distill/alignment.cpp"},
    // Sampling.
    {"paged keys and values", "Kwon et al., arXiv 2309.06180", "generate/cache.h"},
    {"continuous batching", "Yu et al., OSDI 2022", "generate/engine.cpp"},
    {"prefixes shared across calls", "Zheng et al. (SGLang), arXiv 2312.07104, section 3",
     "generate/prefix_tree.h"},
    {"nucleus; min-p; repetition penalty; no repeated n-grams",
     "Holtzman et al., arXiv 1904.09751; Nguyen et al., arXiv 2407.01082; Keskar et al., arXiv "
     "1909.05858, section 4.1; Paulus et al., arXiv 1705.04304, section 2.5",
     "generate/sampling/sampler.cpp, generate/sampling/logit_rules.cpp"},
    {"speculation; drafts by prompt lookup and from other samples",
     "Leviathan et al., arXiv 2211.17192; Saxena, 2023; Oliaro et al., arXiv 2411.04975",
     "generate/sampling/speculation.cpp, generate/sampling/drafts.cpp"},
    {"masks of a grammar's tokens", "Dong et al. (XGrammar), arXiv 2411.15100",
     "grammar/grammar.cpp"},
    {"beam search with transformers' rules", "after Wu et al., arXiv 1609.08144, section 7",
     "generate/beam_search.cpp"},
    {"pass@k", "Chen et al., arXiv 2107.03374, equation 1", "metrics/pass_rate.cpp"},
    {"interval of a share", "Wilson, JASA 1927; Kish's effective number of values",
     "metrics/pass_rate.cpp"},
    // Layers.
    {"RMSNorm; layer norm without bias",
     "Zhang and Sennrich, arXiv 1910.07467, equation 4; Ba et al., arXiv 1607.06450",
     "ops/native/kernels/rows-inl.h"},
    {"rotary positions", "Su et al., arXiv 2104.09864, equation 34",
     "ops/native/kernels/rows-inl.h"},
    {"rotary positions of three axes", "Wang et al. (Qwen2-VL), arXiv 2409.12191, section 2.1",
     "ops/forest.h"},
    {"vision towers: SigLIP; of Qwen2.5-VL, Qwen3-VL, SmolVLM",
     "Zhai et al., arXiv 2303.15343; arXiv 2502.13923; arXiv 2511.21631; arXiv 2504.05299",
     "models/vision"},
    {"yarn; longrope", "Peng et al., arXiv 2309.00071; Ding et al., arXiv 2402.13753",
     "nn/rotary.cpp"},
    {"gated linear units", "Shazeer, arXiv 2002.05202", "ops/native/kernels/rows-inl.h"},
    {"grouped-query attention; samples that share a prompt's pages",
     "Ainslie et al., arXiv 2305.13245; Juravsky et al. (Hydragen), arXiv 2402.05099",
     "ops/native/kernels/attention/attention_forward-inl.h"},
    {"flash attention on GPUs", "Dao et al., arXiv 2205.14135; Dao, arXiv 2307.08691",
     "ops/aten/flash_attention.h"},
    {"gated attention output", "Qiu et al., arXiv 2505.06708, section 2", "nn/blocks.cpp"},
    {"latent attention", "DeepSeek-V2, arXiv 2405.04434, section 2.1.2", "nn/latent_attention.cpp"},
    {"mixtures of experts: the largest probabilities; groups, sigmoids and a bias",
     "Shazeer et al., arXiv 1701.06538, section 2; DeepSeek-V3, arXiv 2412.19437, section 2.1.2",
     "nn/experts.cpp"},
    {"several adapters in a pass", "Sheng et al. (S-LoRA), arXiv 2311.03285",
     "nn/mixed_adapters.h"},
    {"gated delta net, recurrent", "Yang et al., arXiv 2412.06464, equation 10",
     "nn/state_layers.cpp"},
    {"files in FP8 with a scale for each block",
     "Micikevicius et al., arXiv 2209.05433; DeepSeek-V3, arXiv 2412.19437, section 3.3",
     "models/files/formats/fp8.cpp"},
    {"files in MXFP4", "OCP Microscaling Formats 1.0, sections 5.2 and 5.3",
     "models/files/formats/mxfp4.cpp"},
    {"files of GPTQ, of AWQ and of LLM.int8",
     "Frantar et al., arXiv 2210.17323; Lin et al., arXiv 2306.00978; Dettmers et al., arXiv "
     "2208.07339",
     "models/files/formats"},
    {"operations of a step", "Kaplan et al., arXiv 2001.08361, section 2.1",
     "check/memory/mesh_plan.cpp"},
    {"random numbers: Philox", "Salmon et al., SC 2011", "base/random.cpp"},
};

// In the page, whose head says where the numbers are.
std::string page_cell(std::string paper) {
  for (size_t at; (at = paper.find("arXiv ")) != paper.npos;) paper.erase(at, 6);
  return cell_of(paper);
}

// The entries that follow a paper.
template <class Value>
void add(ListTable& table, const std::string& key, const Registry<Value>& entries) {
  for (const auto& entry : entries.list())
    if (!entry.paper.empty())
      table.rows.push_back(
          {entry.name, entry.paper, {code_of(key + ": " + entry.name), page_cell(entry.paper)}});
}

}  // namespace

std::vector<ListTable> paper_tables() {
  ListTable named{"Choices", {"key", "paper"}, {}};
  add(named, "rl.algorithm", rl::algorithms());
  add(named, "preference.loss", preference::losses());
  add(named, "distill.strategy", distill::strategies());
  add(named, "optimizer.name", train::optimizers());
  add(named, "rewards[].name", rewards::registry());
  ListTable others{"Other methods", {"what", "paper", "key, or file in `temper/`"}, {}};
  for (const Method& method : kMethods)
    others.rows.push_back(
        {method.what, method.paper, {method.what, page_cell(method.paper), cell_of(method.where)}});
  return {named, others};
}

}  // namespace temper::cli
