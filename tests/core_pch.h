// Precompiled for the unit tests without LibTorch.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/core_pch.h"
