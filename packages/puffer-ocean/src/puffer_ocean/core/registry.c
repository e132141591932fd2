/* The tables of all environments of this build. The build writes env_list.h from the folders under envs/. */
#include "registry.h"

#define OC_LISTED(name) extern const oc_env oc_env_##name;
#include "env_list.h"
#undef OC_LISTED

#define OC_LISTED(name) &oc_env_##name,
static const oc_env *const oc_tables[] = {
#include "env_list.h"
    NULL,
};

int oc_num_envs(void) {
    return (int)(sizeof oc_tables / sizeof oc_tables[0]) - 1;
}

const oc_env *oc_env_at(int index) {
    return oc_tables[index];
}
