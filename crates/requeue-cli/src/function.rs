//! A deployed function, as the user names it.

use aws_sdk_sqs::config::Region;
use requeue::aws::SdkConfig;

use crate::Error;
use crate::doctor::calls::lambda::{self, FunctionConfiguration};
use crate::failed_call::{FailedCall, call_error};

pub(crate) struct DeployedFunction {
    pub(crate) sdk: SdkConfig,
    pub(crate) name: String,
    pub(crate) configuration: FunctionConfiguration,
}

impl DeployedFunction {
    /// Finds a function by its name or ARN, in this region if one is given, else in that of its ARN
    /// or of AWS's environment.
    pub(crate) async fn find(name: &str, region: Option<&str>) -> Result<Self, Error> {
        let mut sdk = crate::sdk::config().await.into_builder();
        let of_arn = name.strip_prefix("arn:").and_then(|arn| arn.split(':').nth(2));
        if let Some(region) = region.or(of_arn) {
            sdk = sdk.region(Region::new(region.to_owned()));
        }
        let sdk = sdk.build();
        let region =
            sdk.region().ok_or("no region is known; set AWS_REGION, or add --region REGION")?;
        let configuration = lambda::function_configuration(&sdk, name).await.map_err(|error| {
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
                endpoint: &format!("the endpoint of Lambda in {region}"),
                error: &error,
            }
            .to_string()
        })?;
        let name = configuration.function_name.clone().unwrap_or_else(|| name.to_owned());
        Ok(Self { sdk, name, configuration })
    }

    /// Its log group.
    pub(crate) fn log_group(&self) -> String {
        let named = self.configuration.logging_config.as_ref();
        named
            .and_then(|logging| logging.log_group.clone())
            .unwrap_or_else(|| format!("/aws/lambda/{}", self.name))
    }
}
