#ifndef OC_REGISTRY_H
#define OC_REGISTRY_H

#include "table.h"

int oc_num_envs(void);
const oc_env *oc_env_at(int index);

#endif
