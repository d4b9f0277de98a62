#include "yoke/parallel/sync/servers/served_maker.h"

#include "yoke/base/error.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"
#include "yoke/parallel/sync/servers/server_ranks.h"
#include "yoke/parallel/takes_batches.h"
#include "yoke/ps/replica_messenger.h"

namespace yoke::parallel {
namespace {

// What computes one replica: the same choices without the data axis.
MakeOptions of_one_replica(const MakeOptions& options, comm::Communicator& replica) {
  MakeOptions inside = options;
  inside.parallel.sync = "allreduce";
  inside.parallel.data = 1;
  inside.ps = {};
  inside.ddp.hook = "none";  // of what is pushed
  inside.slowdown = {};
  inside.cuda_graph = false;  // the gradients are read
  inside.links = {};
  inside.links.world = &replica;
  inside.links.workers = replica.size();
  inside.links.rank = replica.rank();
  return inside;
}

class ServedParts : public Maker {
 public:
  ServedParts(Kit& kit, const MakeOptions& options, OneDeviceOptions device)
      : kit_(kit),
        device_(std::move(device)),
        setup_(served_setup(options)),
        messenger_(*options.links.messenger, setup_.ranks),
        replica_(split(*options.links.world, "replica")),
        news_(split(*options.links.world, "worker")),
        inside_options_(of_one_replica(options, *replica_)),
        inside_(place_model(kit, inside_options_)) {
    setup_.messenger = &messenger_;
    setup_.replica = news_.get();
  }
  std::vector<optim::NamedTensor> parameters() override { return inside_->parameters(); }
  std::vector<StatePiece> optimizer_state() override { return inside_->optimizer_state(); }
  std::unique_ptr<Strategy> strategy() override {
    device_.segments = kit_.segments;
    return std::make_unique<PsStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, device_, setup_,
                                        inside_->strategy(), inside_->parameters());
  }

 private:
  std::unique_ptr<comm::Communicator> split(comm::Communicator& world, const char* name) const {
    return world.split(setup_.ranks.replica_of(world.rank()), world.rank(), name);
  }

  Kit& kit_;
  OneDeviceOptions device_;
  PsSetup setup_;
  ps::ReplicaMessenger messenger_;
  // To compute, and to act as one worker.
  std::unique_ptr<comm::Communicator> replica_, news_;
  MakeOptions inside_options_;
  std::shared_ptr<Maker> inside_;
};

}  // namespace

namespace {

// Throws ConfigError that names what a worker that takes batches one by one cannot do.
void check_batches(const MakeOptions& options) {
  if (!hands_out_batches(options)) return;
  auto refuse = [&](const char* with, const char* why) {
    throw ConfigError("ps.max_workers = {} with {}: {}.", options.ps.max_workers, with, why);
  };
  if (options.ps.n_push > 1 || options.ps.n_fetch > 1)
    refuse("ps.n_push or ps.n_fetch", "a batch is handed out with each update, and local steps take more");
  if (options.sync_batchnorm)
    refuse("train.sync_batchnorm", "statistics of all batches need a fixed set of workers");
  if (options.skip_non_finite)
    refuse("train.non_finite = \"skip\"", "a batch that was handed out must be used. Use \"stop\"");
}

}  // namespace

PsSetup served_setup(const MakeOptions& options) {
  PsSetup setup;
  setup.messenger = options.links.messenger;
  setup.job = options.links.job;
  setup.server = options.links.server;
  setup.ranks = replica_ranks(options, options.links.workers);
  setup.workers = setup.workers_at_start = setup.ranks.replicas;
  setup.ps = options.ps;
  setup.at_start = servers_at_start(options);
  if (setup.job != nullptr) setup.machines = machines_of_servers(options, *setup.job, options.links.workers);
  const ps::Places places = places_of(options, options.links.workers);
  setup.places = setup.at_start > 0 ? places.all_servers : 0;
  if (hands_out_batches(options)) {
    setup.workers = places.all_workers;
    setup.ranks.servers = places.servers;
  }
  setup.slowdown = options.slowdown;
  setup.policy = policy_of(options, setup.workers_at_start);
  setup.accumulate = options.accumulate;
  setup.timeout = options.ps.timeout;
  setup.skip_non_finite = options.skip_non_finite;
  check_batches(options);
  if (const std::optional<HookChoice> hook = parse_hook(options.ddp.hook))
    setup.packing = ps::make_packing(hook->name, hook->value);
  setup.sparse = uses_sparse_tables(options, options.optimizer);
  if (options.optimizer.optimizer == "proximal") setup.l1 = options.optimizer.l1;
  return setup;
}

std::shared_ptr<Maker> make_served_parts(Kit& kit, const MakeOptions& options, OneDeviceOptions device) {
  return std::make_shared<ServedParts>(kit, options, std::move(device));
}

}  // namespace yoke::parallel
