//! A deployed function, as the user names it.

use aws_sdk_sqs::config::Region;
use requeue::aws::SdkConfig;

use crate::Error;
use crate::doctor::calls::{self, FunctionConfiguration};
use crate::doctor::endpoints::shown_endpoint;
use crate::failed_call::{FailedCall, call_error};
use crate::progress::{CommandProgress, NOTICEABLE};
use crate::queue_argument::RegionArgument;

pub(crate) struct DeployedFunction {
    pub(crate) sdk: SdkConfig,
    pub(crate) name: String,
    pub(crate) configuration: FunctionConfiguration,
}

impl DeployedFunction {
    /// Finds a function by its name or ARN, in the region of its ARN, else in this one.
    pub(crate) async fn find(name: &str, region: &RegionArgument) -> Result<Self, Error> {
        let step = format!("waiting for lambda:GetFunctionConfiguration of {name}");
        let _asking = CommandProgress::shown_after(NOTICEABLE, step);
        let sdk = crate::sdk::config().await;
        let of_arn = name.strip_prefix("arn:").and_then(|arn| arn.split(':').nth(2));
        let region = of_arn.unwrap_or_else(|| region.or_of(&sdk));
        let sdk = sdk.to_builder().region(Region::new(region.to_owned())).build();
        let configuration = calls::function_configuration(&sdk, name).await.map_err(|error| {
            let error = call_error(&error);
            if error.code == "ResourceNotFoundException" {
                return format!(
                    "there is no function {name} in {region}; check its name, the region and the \
                     account of the credentials"
                );
            }
            FailedCall {
                service: "Lambda",
                operation: "GetFunctionConfiguration",
                resource: name,
                endpoint: &shown_endpoint("Lambda", &sdk),
                error: &error,
            }
            .to_string()
        })?;
        let name = configuration.function_name.clone().unwrap_or_else(|| name.to_owned());
        Ok(Self { sdk, name, configuration })
    }

    /// Its log group.
    pub(crate) fn log_group(&self) -> String {
        self.configuration.logging_config.clone().unwrap_or_default().group_of(&self.name)
    }
}
