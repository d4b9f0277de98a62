// What train.groups and train.decay_biases mean for the parameters of a model.
#pragma once

#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/optim/options.h"

namespace yoke::optim {

// Whether a name fits a pattern of train.groups, as in a shell; * also matches dots.
bool matches(const std::string& pattern, const std::string& name);

// The same options with `settings` of these parameters, which are all of the model's, whole. Before the model
// is distributed: a rank that holds parts looks them up by name. Throws ConfigError for a pattern that
// matches none of them, naming near ones, and if all are frozen.
OptimizerOptions with_settings(OptimizerOptions options, const std::vector<NamedTensor>& parameters);

// The settings of a parameter, or of a piece of it ("conv1.weight@0:12"). Those of the options as a whole, if
// it is not among them.
ParameterSettings settings_of(const OptimizerOptions& options, const std::string& name);

// Whether parameters differ in learning rate or weight decay.
bool has_groups(const OptimizerOptions& options);

}  // namespace yoke::optim
