#include "cli/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>

#include "cli/command_hints.h"
#include "cli/idle_keys.h"
#include "cli/idle_options.h"
#include "cli/keys_read.h"
#include "cli/lab.h"
#include "cli/positive.h"
#include "cli/run_config.h"
#include "cli/version.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/config/arguments.h"

namespace yoke::cli {
namespace {

using Subcommand = CLI::App;

// The list of commands, in the order of --help.
class Parser {
 public:
  explicit Parser(CommandLine& out) : out_(out) {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", std::string("yoke ") + kVersion);
    app_.footer(
        "Getting started: yoke train configs/lenet_fashion.toml\n"
        "yoke COMMAND --help shows the options of a command.");
    add_train();
    add_verify();
    add_eval();
    add_text();
    add_model();
    add_bench();
    add_lab();
    add_collab();
    add_checkpoint();
    add_config();
    add_report();
    add_why();
    add_environment();
    app_.add_subcommand("run", "launch any program on several ranks (torchrun's flags, then PROGRAM)");
    add_topo();
    add_estimate();
    add_profile();
    add_pipeline();
    add_ps();
    Subcommand* doctor =
        app_.add_subcommand("doctor", "check this machine: LibTorch, speed, devices, disk, missing packages");
    doctor->add_flag("--faults", out_.list_faults, "list the injection points of YOKE_FAULT");
    common(doctor, "yoke doctor");
  }

  void parse(std::vector<std::string> words) {
    check_commands(app_, words);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app_.parse(std::move(words));
    for (const Subcommand* command = &app_; !command->get_subcommands().empty();) {
      command = command->get_subcommands().front();
      out_.command += (out_.command.empty() ? "" : " ") + command->get_name();
      for (const CLI::Option* option : command->get_options())
        if (option->count() > 0) out_.given.push_back(option->get_name());
    }
  }

  static void list(const Subcommand& command, const std::string& name, std::vector<CommandOptions>& all) {
    auto parts = command.get_subcommands([](const Subcommand*) { return true; });
    for (const Subcommand* part : parts)
      list(*part, name.empty() ? part->get_name() : name + " " + part->get_name(), all);
    if (!parts.empty()) return;
    all.push_back({name, {}});
    for (const CLI::Option* option : command.get_options()) all.back().options.push_back(option->get_name());
  }

  std::vector<CommandOptions> list() const {
    std::vector<CommandOptions> all;
    list(app_, "", all);
    return all;
  }

  int exit(const CLI::ParseError& error) const { return app_.exit(error); }

  [[noreturn]] void refuse_extras(const config::Schema& schema) const { cli::refuse_extras(app_, schema); }

 private:
  Subcommand* common(Subcommand* command, const std::string& example) {
    command->add_flag("--json", out_.json, "print a single JSON document to stdout");
    command->add_flag("-q,--quiet", out_.quiet, "print warnings and results only");
    command->footer("Example: " + example);
    return command;
  }

  // A plain option that is an abbreviation of a configuration key.
  void key_option(Subcommand* command, const std::string& flag, const std::string& key,
                  const std::string& help) {
    command->add_option_function<std::string>(
        flag,
        [this, flag, key](const std::string& value) {
          out_.overrides.push_back({key, value, flag});
        },
        help);
  }

  void add_train() {
    auto* command = common(app_.add_subcommand("train", "train a model; resumes from the last checkpoint"),
                           "yoke train configs/lenet_fashion.toml --train.lr 0.1 --out.dir runs/try1\n"
                           "Every configuration key is also an option: yoke config keys");
    command->add_option("FILE", out_.train.file, "configuration (TOML)")->required();
    command->add_option("--resume", out_.train.resume, "auto, never, or a checkpoint folder")
        ->capture_default_str();
    command->add_option("--init", out_.train.init, "initial weights (safetensors)");
    command->add_option("--nproc", out_.train.nproc, "number of ranks on this machine")
        ->check(CLI::Range(1, 1024));
    key_option(command, "--device", "train.device", "cpu, cuda or cuda:N");
    key_option(command, "--steps", "train.steps", "optimizer steps");
    command->add_flag_function(
        "--elastic",
        [this](int64_t) {
          out_.overrides.push_back({"elastic.enabled", "true", "--elastic"});
        },
        "continue without ranks that die or leave");
    command->add_flag_function(
        "--trace",
        [this](int64_t) {
          out_.overrides.push_back({"out.trace", "true", "--trace"});
        },
        "write a Chrome trace to OUT/trace/");
  }

  void add_eval() {
    auto* command = common(app_.add_subcommand("eval", "run a model on the test set or on your own inputs"),
                           "yoke eval configs/lenet_fashion.toml --init weights.safetensors");
    command->add_option("FILE", out_.eval.file, "configuration (TOML)")->required();
    command->add_option("--init", out_.eval.init, "weights (safetensors)")->required();
    command->add_option("--inputs", out_.eval.inputs,
                        "safetensors with tensor `input` (`input_ids` for GPT-2)");
    command->add_option("--outputs", out_.eval.outputs, "file for tensor `output` (logits)");
    key_option(command, "--device", "train.device", "cpu, cuda or cuda:N");
  }

  void add_text() {
    auto* group = app_.add_subcommand("data", "prepare data");
    group->require_subcommand(1);
    add_options(*common(group->add_subcommand("tokens", "turn text files into token files for training"),
                        "yoke data tokens book.txt -o data/book --tokenizer tokenizer.json"),
                out_.tokens);
    add_options(*common(app_.add_subcommand("generate", "continue a text with a trained language model"),
                        "yoke generate runs/text_bytes --prompt \"Once upon a time\" --temperature 0.7"),
                out_.generate);
  }

  void add_model() {
    auto* group = app_.add_subcommand("model", "inspect a model or export freshly initialized weights");
    group->require_subcommand(1);
    auto* info = common(group->add_subcommand("info", "parameters, blocks and tensors of a model"),
                        "yoke model info resnet50");
    info->add_option("NAME", out_.model.name, "model")->required();
    auto* save = common(group->add_subcommand("export", "write freshly initialized weights"),
                        "yoke model export lenet -o lenet.safetensors --seed 7");
    save->add_option("NAME", out_.model.name, "model")->required();
    save->add_option("-o,--output", out_.model.output, "output file")->required();
    key_option(save, "--seed", "train.seed", "random seed of the weights");
  }

  void add_bench() {
    auto* group = app_.add_subcommand("bench", "run a benchmark");
    group->require_subcommand(1);
    auto* step = common(
        group->add_subcommand("step", "training throughput by model, batch size, precision and device"),
        "yoke bench step --model lenet,vgg_small --batch 16,64 --precision fp32,bf16");
    add_options(*step, out_.bench_step);
    add_figure_options(*step, out_.figures);
    auto* kernels = common(
        group->add_subcommand("kernels", "memory bandwidth of Yoke's own kernels, beside a plain copy"),
        "yoke bench kernels --device cuda --precision bf16");
    add_options(*kernels, out_.bench_kernels);
    add_bench_scaling(group);
    add_bench_collectives(group);
    add_bench_average(group);
    add_bench_messenger(group);
    add_bench_ps(group);
  }

  void add_bench_scaling(Subcommand* group) {
    auto* command = common(
        group->add_subcommand("scaling", "scaling over 1, 2, … ranks: speed, efficiency, communication cost"),
        "yoke bench scaling --model lenet --nproc 1,2,4\n"
        "Every configuration key is also an option, e.g. --ddp.hook fp16");
    add_options(*command, out_.bench_scaling);
    add_figure_options(*command, out_.figures);
  }

  void add_verify() {
    auto* command = common(
        app_.add_subcommand("verify", "check that parallel layouts give the same results as one device"),
        "yoke verify configs/lenet_fashion.toml --layouts \"data=2; data=4; data=2,accumulate=2\"");
    VerifyArguments& arguments = out_.verify;
    command->add_option("FILE", arguments.file, "configuration (TOML)")->required();
    command
        ->add_option("--layouts", arguments.layouts,
                     "separated by ;  words: data accumulate zero split sync pipeline schedule …")
        ->required();
    command->add_option("--steps", arguments.steps, "steps per layout")
        ->capture_default_str()
        ->check(positive());
    command->add_option("--dtype", arguments.dtype, "fp64 or fp32")
        ->capture_default_str()
        ->check(CLI::IsMember({"fp64", "fp32"}));
    command
        ->add_option("--tolerance", arguments.tolerance,
                     "largest accepted difference; 0: 1e-10 in fp64, 1e-4 in fp32")
        ->capture_default_str()
        ->check(finite_from_zero());
  }

  void add_bench_messenger(Subcommand* group) {
    auto* command =
        common(group->add_subcommand("messenger",
                                     "request rate and bandwidth between two processes on this machine"),
               "yoke bench messenger --backend shm --bytes 0,1K,1M");
    add_options(*command, out_.bench_messenger);
  }

  void add_bench_ps(Subcommand* group) {
    auto* command =
        common(group->add_subcommand(
                   "ps", "speed, staleness and idle time of a parameter server rule; server throughput"),
               "yoke bench ps --policy k_async --workers 8 --k 4 --delay exp:5ms --updates 2000");
    add_options(*command, out_.bench_ps);
  }

  void add_lab() {
    auto* group =
        app_.add_subcommand("lab", "experiments that reproduce known figures; without NAME: list them");
    common(group, "yoke lab pipeline --quick -o runs/pipeline");
    for (const LabRow& row : labs()) {
      auto* command = common(group->add_subcommand(row.name, row.question), row.example);
      if (row.trains) command->footer("Example: " + row.example + "  (and all configuration keys)");
      if (row.add_options != nullptr) row.add_options(*command, out_);
      add_lab_options(*command, row.options, out_.lab_values);
      command->add_option("-o,--output", out_.lab_output, "folder [runs/lab_" + row.name + "]");
      command->add_flag("--quick", out_.lab_quick, "tiny setting of a few seconds");
    }
  }

  void add_collab() {
    auto* group =
        app_.add_subcommand("collab", "train one model over the internet with peers that join and leave");
    group->require_subcommand(1);
    auto* start = common(group->add_subcommand("start", "start a run, host its meeting point, and take part"),
                         "yoke collab start configs/mlp_tiny.toml --target-batch 256 --ticket-file ticket\n"
                         "Every configuration key is also an option: yoke config keys");
    add_start_options(*start, out_.collab);
    key_option(start, "--target-batch", "collab.target_batch", "samples of all peers together per step");
    key_option(start, "--robust", "collab.robust", "none, clip, centered_clip, median or krum");
    key_option(start, "--steps", "train.steps", "steps of the run");
    key_option(start, "--device", "train.device", "cpu, cuda or cuda:N");
    auto* join = common(group->add_subcommand("join", "take part in a run"),
                        "yoke collab join ticket --collab.bandwidth 20mbit");
    add_join_options(*join, out_.collab);
    key_option(join, "--device", "train.device", "cpu, cuda or cuda:N");
    auto* watch =
        common(group->add_subcommand("watch", "show the peers of a run, their contributions, and the loss"),
               "yoke collab watch ticket --html run.html");
    add_watch_options(*watch, out_.collab);
  }

  void add_bench_average(Subcommand* group) {
    auto* command =
        common(group->add_subcommand("average",
                                     "time to average a vector over peers, encrypted, with unequal shares"),
               "yoke bench average --peers 4 --bytes 16MB --link 100mbit,20mbit,20mbit,5mbit");
    add_options(*command, out_.bench_average);
  }

  void add_bench_collectives(Subcommand* group) {
    auto* command = common(
        group->add_subcommand("collectives", "latency and bandwidth of collectives, with verified results"),
        "yoke bench collectives --nproc 4 --backend shm --op all_reduce --bytes 1K,1M,64M");
    add_options(*command, out_.bench_collectives);
    add_figure_options(*command, out_.figures);
  }

  void add_why() {
    auto* command =
        common(app_.add_subcommand(
                   "why", "read the flight records of a failed job and find the first rank that diverged"),
               "yoke why yoke-logs/flight");
    command->add_option("DIR", out_.why.directory, "folder with rank-N.json files")->required();
  }

  void add_job(Subcommand& command) {
    cluster::JobQuery& job = out_.ps.job;
    command
        .add_option("ADDRESS", job.where,
                    "folder of the run on this machine, or HOST:PORT of `yoke run --rdzv-endpoint`")
        ->required();
    command.add_option("--secret-file", job.secret_file, "with HOST:PORT: file with the key of the job");
    command.add_option("--rdzv-id", job.job_id, "with HOST:PORT: --rdzv-id of the job");
    command.add_flag("--encrypt", job.encrypt, "with HOST:PORT: if the job uses --encrypt");
    command.add_flag("--insecure", job.insecure, "with HOST:PORT: if the job uses --insecure");
  }

  void add_ps() {
    auto* group = app_.add_subcommand("ps", "watch or change a running job with parameter servers");
    group->require_subcommand(1);
    auto* top = common(group->add_subcommand("top", "a live view of servers and workers, until the job ends"),
                       "yoke ps top runs/mlp_tiny\n"
                       "With --json: one object on a line for each refresh.");
    add_job(*top);
    top->add_flag("--once", out_.ps.once, "show the state once and exit");
    top->add_option("--interval", out_.ps.interval, "seconds between two refreshes [1]")->check(positive());
    auto* leave = common(group->add_subcommand("leave",
                                               "end a server while training continues (ps.replicas >= 1, or "
                                               "ps.max_servers), or a worker (ps.max_workers)"),
                         "yoke ps leave runs/mlp_tiny 2\n"
                         "yoke ps leave runs/mlp_tiny --worker 3");
    add_job(*leave);
    auto* server = leave->add_option("SERVER", out_.ps.server, "number of the server");
    leave->add_option("--worker", out_.ps.worker, "number of the worker that leaves, instead of a server")
        ->excludes(server);
    auto* join = common(
        group->add_subcommand("join",
                              "add a server (ps.max_servers) or a worker (ps.max_workers) to a running job, "
                              "until the job ends"),
        "yoke ps join runs/mlp_tiny\n"
        "yoke ps join runs/mlp_tiny --worker\n"
        "yoke ps join node0:29400 --secret-file key --config run.toml");
    join->add_flag("--worker", out_.ps.works, "join as a worker");
    add_job(*join);
    join->add_option("--config", out_.ps.config, "configuration of the run [ADDRESS/config.toml]");
  }

  void add_checkpoint() {
    auto* group = app_.add_subcommand("ckpt", "list, verify, export and import checkpoints");
    group->require_subcommand(1);
    auto* list =
        common(group->add_subcommand("ls", "list the checkpoints of a run"), "yoke ckpt ls runs/lenet");
    list->add_option("DIR", out_.checkpoint.path, "run folder")->required();
    auto* verify =
        common(group->add_subcommand("verify", "verify every digest"), "yoke ckpt verify runs/lenet");
    verify->add_option("DIR", out_.checkpoint.path, "run folder or checkpoint")->required();
    auto* save =
        common(group->add_subcommand("export", "export the weights of a checkpoint to a safetensors file"),
               "yoke ckpt export runs/lenet -o lenet.safetensors");
    save->add_option("DIR", out_.checkpoint.path, "run folder (newest checkpoint) or checkpoint")->required();
    save->add_option("-o,--output", out_.checkpoint.output, "output file")->required();
    save->add_flag("--raw", out_.checkpoint.raw,
                   "the weights of the last step, not their moving average (train.ema)");
    auto* load = common(group->add_subcommand("import", "create a run folder that starts from given weights"),
                        "yoke ckpt import gpt2.safetensors -o runs/gpt2");
    load->add_option("FILE", out_.checkpoint.path, "weights (safetensors)")->required();
    load->add_option("-o,--output", out_.checkpoint.output, "folder to create")->required();
  }

  void add_config() {
    auto* group = app_.add_subcommand("config", "show a configuration, or list all keys");
    group->require_subcommand(1);
    auto* show = common(group->add_subcommand("show", "show every effective value and its origin"),
                        "yoke config show configs/lenet_fashion.toml --train.lr 0.1");
    show->add_option("FILE", out_.config_file, "configuration (TOML)")->required();
    common(group->add_subcommand("keys", "list every key with its default and description"),
           "yoke config keys");
  }

  void add_report() {
    auto* command = common(app_.add_subcommand("report", "write the report of a run as an HTML file"),
                           "yoke report runs/lenet");
    command
        ->add_option("RUN_DIR", out_.report.directories, "run folders; several: one page that compares them")
        ->required();
    command->add_option("-o,--output", out_.report.output,
                        "output file; default: RUN_DIR/report.html, or runs.html for several runs");
    command->add_option("--target-loss", out_.report.target_loss,
                        "several runs: loss for the time to target [lowest loss that all reach]");
    command->add_option("--baseline", out_.report.baseline,
                        "folder of the same run on one worker; adds the scaling efficiency");
  }

  void add_environment() {
    common(app_.add_subcommand("env", "show the rank, world size and launcher detected from the environment"),
           "yoke env, or under a launcher: mpirun -np 2 yoke env");
  }

  void add_topo() {
    auto* group = app_.add_subcommand("topo", "show a topology and predict collective times");
    group->require_subcommand(1);
    auto* show = common(group->add_subcommand("show", "show links, rings and predicted times"),
                        "yoke topo show --preset dgx1");
    auto* predict = common(group->add_subcommand("predict", "predict the time of each algorithm"),
                           "yoke topo predict --op all_reduce --bytes 1M,64M --preset dgx1 --machines 4");
    TopoArguments& arguments = out_.topo;
    show->add_option("--mesh", arguments.mesh, "show the coordinates of ranks: pipeline=2,data=2,tensor=2");
    add_figure_options(*show, out_.figures);
    // A list in one word: the next word may be FILE.
    predict->add_option("--op", arguments.ops, "all_reduce, broadcast, ...")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->required();
    predict->add_option("--bytes", arguments.sizes, "sizes: 64K,25MB")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->required();
    predict->add_option("--algorithm", arguments.algorithms, "ring, tree, ...; default all")
        ->delimiter(',')
        ->allow_extra_args(false);
    for (Subcommand* command : {show, predict}) {
      command->add_option("FILE", arguments.file, "cluster.toml; default: this machine");
      command->add_option("--preset", arguments.preset, "pcie4 pcie8 dgx1 p2.16xlarge dgx2 h100");
      command->add_option("--machines", arguments.machines, "number of machines of the preset");
      command->add_option("--network", arguments.network, "bandwidth of a network interface: 100gbit");
    }
  }

  void add_estimate() {
    auto* command =
        common(app_.add_subcommand("estimate",
                                   "steps, FLOPs and hours of a whole training, here and on known devices"),
               "yoke estimate configs/recipes/imagenet_tiny.toml --samples 1281167 --replicas 8");
    EstimateArguments& arguments = out_.estimate;
    command->add_option("FILE", arguments.file, "configuration (TOML)")->required();
    command->add_option("--steps", arguments.steps, "steps to measure here; 0: none")
        ->capture_default_str()
        ->check(CLI::Range(0, 1'000'000));
    command->add_option("--batch", arguments.batch, "samples of a measured step [data.batch_size]")
        ->check(CLI::Range(1, 1'000'000'000));
    command->add_option("--samples", arguments.samples, "training samples [those of the data set]")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 50));
    command->add_option("--replicas", arguments.replicas, "replicas, each on a device of its own")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    command->add_option("--utilisation", arguments.utilisation, "share of the published peak, above 0 to 1")
        ->capture_default_str()
        ->check(CLI::Range(1e-6, 1.0));
    command->add_option("--devices", arguments.devices, "all, or a list: V100,H100")->capture_default_str();
    key_option(command, "--device", "train.device", "cpu, cuda or cuda:N");
  }

  void add_profile() {
    auto* command = common(
        app_.add_subcommand("profile",
                            "measure time and size of each block or node of a model, for yoke plan and yoke "
                            "partition"),
        "yoke profile configs/vgg16_synthetic.toml -o vgg16.json");
    command->add_option("FILE", out_.profile.file, "configuration (TOML)")->required();
    command->add_option("-o,--output", out_.profile.output, "output file; default: stdout");
    command->add_option("--repeats", out_.profile.repeats, "number of passes (the median is used)")
        ->capture_default_str()
        ->check(CLI::Range(1, 10000));
    command->add_flag("--blocks", out_.profile.blocks,
                      "for a graph: measure the blocks that pipelines cut, not the nodes");
    key_option(command, "--device", "train.device", "cpu, cuda or cuda:N");
  }

  void add_pipeline() {
    describe(*common(app_.add_subcommand("plan", "find the fastest assignment of layers to devices"),
                     "yoke plan --profile vgg16.json --devices 8 --bandwidth 10gbit --explain"),
             out_.plan);
    describe(*common(app_.add_subcommand("simulate", "run a pipeline schedule on a virtual clock"),
                     "yoke simulate --schedule 1f1b --stages 4 --microbatches 8 --forward 1 --backward 2"),
             out_.simulate);
    auto* partition = common(app_.add_subcommand("partition", "assign the nodes of a network to machines"),
                             "yoke partition network.json --parts 4 --svg network.svg");
    describe(*partition, out_.partition);
    add_figure_options(*partition, out_.figures);
  }

  CommandLine& out_;
  CLI::App app_{"Distributed training of neural networks on LibTorch.", "yoke"};
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> without_nproc(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--nproc")
      ++i;
    else if (words[i].rfind("--nproc=", 0) != 0)
      kept.push_back(words[i]);
  }
  return kept;
}

}  // namespace

CommandLine parse_command_line(std::vector<std::string> words) {
  CommandLine line;
  line.typed = "yoke " + join(words, " ");
  line.words = without_nproc(words);
  // Words after the program belong to the program, whatever they look like.
  if (!words.empty() && words.front() == "run") {
    line.command = "run";
    line.run.words.assign(words.begin() + 1, words.end());
    return line;
  }
  Configuration configuration;
  std::vector<config::Override> overrides = config::take_overrides(configuration.schema, words);
  Parser parser(line);
  try {
    parser.parse(words);
  } catch (const CLI::CallForHelp& asked) {
    std::exit(parser.exit(asked));
  } catch (const CLI::CallForVersion& asked) {
    std::exit(parser.exit(asked));
  } catch (const CLI::ExtrasError&) {
    parser.refuse_extras(configuration.schema);
  } catch (const CLI::ParseError& error) {
    throw ConfigError("{}. `yoke --help` and `yoke COMMAND --help` show what is accepted.",
                      first_line(error.what()));
  }
  if (!overrides.empty() && !reads_configuration(line.command)) {
    throw ConfigError("{}: `yoke {}` takes no configuration keys.", overrides.front().origin, line.command);
  }
  for (const config::Override& change : line.overrides)
    for (const config::Override& other : overrides)
      if (other.key == change.key && other.value != change.value && other.origin != "--set")
        throw ConfigError("{} {} and {} {} set the same key. Use one of them.", change.origin, change.value,
                          other.origin, other.value);
  refuse_idle_options(line);
  // Options of a bench are passed to its ranks as keys.
  if (line.bench_scaling.result_file.empty()) refuse_unread_keys(line.command, overrides);
  // A dotted key wins over its short form only when it comes later in `overrides`: keep them last.
  line.overrides.insert(line.overrides.end(), overrides.begin(), overrides.end());
  return line;
}

std::vector<CommandOptions> all_command_options() {
  CommandLine line;
  return Parser(line).list();
}

}  // namespace yoke::cli
